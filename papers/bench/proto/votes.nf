{
  "AppName": "B-VOTES",
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": { "to": "SRC", "threshold": 2, "key": "Names.names" },
}
{
  "AppName": "B-VOTES",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": { "to": "SRC", "threshold": 0, "key": "Names.names" },
}
{
  "AppName": "B-VOTES-OF-THREE",
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": { "to": "SRC", "threshold": 3, "key": "Names.names" },
}
{
  "AppName": "B-VOTES-OF-THREE",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": { "to": "SRC", "threshold": 0, "key": "Names.names" },
}
