{
  "AppName": "T-WORDS",
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "Counts.kvs",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "SERVER",
    "threshold": 0,
    "key": "NULL",
  },
}
