{
  "AppName": "B-WORDS",
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "Counts.counts",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": { "to": "SRC", "threshold": 0, "key": "NULL" },
}
{
  "AppName": "B-WORDS",
  "path": "element",
  "Precision": 0,
  "get": "Counts.counts",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": { "to": "SRC", "threshold": 0, "key": "NULL" },
}
