{
  "AppName": "B-SHADOW-2",
  "path": "element",
  "Precision": 3,
  "get": "Sum.values",
  "addTo": "Part.values",
  "clear": "shadow",
  "modify": "nop",
  "CntFwd": { "to": "ALL", "threshold": 2, "key": "ClientID" },
}
{
  "AppName": "B-SHADOW-4",
  "path": "element",
  "Precision": 3,
  "get": "Sum.values",
  "addTo": "Part.values",
  "clear": "shadow",
  "modify": "nop",
  "CntFwd": { "to": "ALL", "threshold": 4, "key": "ClientID" },
}
