{
  "AppName": "T-ELECT",
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "SERVER",
    "threshold": 2,
    "key": "Names.names",
  },
}
