{
  "AppName": "B-BALLOTS",
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": { "to": "SERVER", "threshold": 1073741824, "key": "Names.names" },
}
