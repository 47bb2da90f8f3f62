{ //agtr.nf
  "AppName": "DT-1",
  "Precision": 8,
  "get": "AgtrGrad.tensor",
  "addTo": "NewGrad.tensor",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "ALL",
    "threshold": 2,
    "key": "ClientID",
  }
}
