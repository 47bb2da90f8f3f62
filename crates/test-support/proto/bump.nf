{
  "AppName": "T-BUMP",
  "path": "element",
  "Precision": 1,
  "get": "Bumped.now",
  "addTo": "Indexed.by",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "SRC",
    "threshold": 0,
    "key": "NULL",
  },
}
