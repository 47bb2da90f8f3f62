{
  "AppName": "T-SHADOW",
  "path": "element",
  "get": "Total.values",
  "addTo": "Part.values",
  "clear": "shadow",
  "CntFwd": { "to": "ALL", "threshold": 2, "key": "ClientID" },
}
