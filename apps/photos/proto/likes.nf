{
  "AppName": "photos-likes",
  // The demo shows the element at work also on one host.
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "Likes.of",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": { "to": "SRC", "threshold": 0, "key": "NULL" },
}
{
  "AppName": "photos-likes",
  "Precision": 0,
  "get": "Likes.of",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": { "to": "SRC", "threshold": 0, "key": "NULL" },
}
