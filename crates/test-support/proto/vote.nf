{
  "AppName": "T-VOTE",
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "SRC",
    "threshold": 2,
    "key": "Names.names",
  },
}
