{
  "AppName": "T-STEP",
  "path": "element",
  "get": "StepReply.parameters",
  "addTo": "StepRequest.gradient",
  "clear": "copy",
  "Precision": 2,
  "CntFwd": { "to": "SERVER", "threshold": 2, "key": "ClientID" },
}
