{
  "AppName": "T-WORDS",
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "Counts.kvs",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "SRC",
    "threshold": 0,
    "key": "NULL",
  },
}
{
  "AppName": "T-WORDS",
  "path": "element",
  "Precision": 0,
  "get": "Found.kvs",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "SRC",
    "threshold": 0,
    "key": "NULL",
  },
}
