{ //of8.nf: the values of 8 hosts are added up, and the sums go to all of them
  "AppName": "SUMS-8",
  "Precision": 6,
  "get": "Total.values",
  "addTo": "Part.values",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "ALL",
    "threshold": 8,
    "key": "ClientID",
  },
}
