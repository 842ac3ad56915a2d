const shown = document.getElementById("swagger-ui");
SwaggerUIBundle({ url: shown.dataset.url, domNode: shown, validatorUrl: null });
