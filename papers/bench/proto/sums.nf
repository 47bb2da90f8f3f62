{
  "AppName": "B-SUM-2",
  "path": "element",
  "Precision": 3,
  "get": "Sum.values",
  "addTo": "Part.values",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": { "to": "ALL", "threshold": 2, "key": "ClientID" },
}
{
  "AppName": "B-SUM-4",
  "path": "element",
  "Precision": 3,
  "get": "Sum.values",
  "addTo": "Part.values",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": { "to": "ALL", "threshold": 4, "key": "ClientID" },
}
{
  "AppName": "B-SUM-8",
  "path": "element",
  "Precision": 3,
  "get": "Sum.values",
  "addTo": "Part.values",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": { "to": "ALL", "threshold": 8, "key": "ClientID" },
}
