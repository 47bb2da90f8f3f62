{ //large.nf
  "AppName": "DT-2",
  "Precision": 4,
  "get": "LargeSum.tensor",
  "addTo": "LargeGrad.tensor",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "ALL",
    "threshold": 4,
    "key": "ClientID",
  }
}
