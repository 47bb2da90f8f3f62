{ //of8.nf: sum over 8 hosts; all hosts receive the sums
  "AppName": "SUMS-8",
  "path": "element",
  "Precision": 6,
  "get": "Total.values",
  "addTo": "Part.values",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "ALL",
    "threshold": 8,
    "key": "ClientID",
  },
}
