{
  "AppName": "T-SMALL",
  "path": "element",
  "get": "Total.values",
  "addTo": "Part.values",
  "clear": "copy",
  "lanes": "int8",
  "CntFwd": { "to": "ALL", "threshold": 2, "key": "ClientID" },
}
