const { data, layout, config } = JSON.parse(document.getElementById("figure").textContent);
Plotly.newPlot("plot", data, layout, config);
