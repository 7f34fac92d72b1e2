// The frame of the page is painted before anything of it runs; its modules are fetched meanwhile.
requestAnimationFrame(() => setTimeout(() => import("./app.js")));
