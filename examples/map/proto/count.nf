{ "AppName": "visits", "addTo": "Seen.pages", "path": "element" }
