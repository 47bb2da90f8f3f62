{ "AppName": "visits", "addTo": "Seen.pages" }
