{ //of2.nf: sum over 2 hosts; all hosts receive the sums
  "AppName": "SUMS-2",
  "path": "element",
  "Precision": 6,
  "get": "Total.values",
  "addTo": "Part.values",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "ALL",
    "threshold": 2,
    "key": "ClientID",
  },
}
