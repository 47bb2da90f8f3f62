{ //of4.nf: sum over 4 hosts; all hosts receive the sums
  "AppName": "SUMS-4",
  "path": "element",
  "Precision": 6,
  "get": "Total.values",
  "addTo": "Part.values",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "ALL",
    "threshold": 4,
    "key": "ClientID",
  },
}
