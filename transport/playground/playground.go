// Package playground serves GraphiQL from the binary, without any other host.
package playground

import (
	"embed"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
)

// The build writes into dist; what is committed there only lets the engine build without it.
//
//go:embed all:dist
var files embed.FS

// policy lets the page load from this server only, and connect to it only. Monaco writes style elements.
const policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"font-src 'self' data:; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// hashed are the files whose name changes with what is in them.
var hashed = regexp.MustCompile(`/(chunk|font)-[A-Z0-9]{8}\.`)

// missing is shown where the playground was not built.
const missing = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Harness Engine playground</title>
<h1>The playground was not built</h1>
<p>Build it and the engine again: <code>make build</code>, or <code>npm ci &amp;&amp; npm run build</code> in <code>transport/playground</code> and then <code>go build</code>.</p>
<p>The API itself works: POST to <code>/graphql</code>.</p>
</html>
`

// Handler serves the page at /playground and its files below /playground/assets/.
func Handler() http.Handler {
	dist, err := fs.Sub(files, "dist")
	if err != nil { // the pattern embeds the folder
		panic(err)
	}
	return handler(dist)
}

func handler(dist fs.FS) http.Handler {
	assets := http.StripPrefix("/playground/", http.FileServerFS(dist))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		switch name := path.Clean(r.URL.Path); {
		case r.URL.Path == "/playground/":
			http.Redirect(w, r, "/playground", http.StatusFound)
		case name == "/playground":
			page, err := fs.ReadFile(dist, "index.html")
			h.Set("Content-Type", "text/html; charset=utf-8")
			if errors.Is(err, fs.ErrNotExist) {
				w.WriteHeader(http.StatusNotFound)
				page = []byte(missing)
			}
			_, _ = w.Write(page)
		case strings.HasPrefix(name, "/playground/assets/") && !strings.HasSuffix(r.URL.Path, "/"):
			h.Set("Cache-Control", "no-cache")
			if hashed.MatchString(name) {
				h.Set("Cache-Control", "public, max-age=31536000, immutable")
			}
			assets.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}
