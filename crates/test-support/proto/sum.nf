{
  "AppName": "T-SUM",
  "path": "element",
  "Precision": 3,
  "get": "AgtrGrad.tensor",
  "addTo": "NewGrad.layer.gradient",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "ALL",
    "threshold": 2,
    "key": "ClientID",
  },
}
