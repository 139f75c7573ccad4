package broker

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Model providers that have a door.
const (
	ProviderAnthropic = "anthropic"
	ProviderOpenAI    = "openai"
)

// Upstream is where a provider is reached, and with which key. The key never leaves the engine.
type Upstream struct {
	// BaseURL in the form of the provider's own SDK: without a version for Anthropic, with /v1 for OpenAI. Empty is the
	// provider's public address.
	BaseURL string
	Key     string
}

// provider is what the proxy knows of one provider's API.
type provider struct {
	publicURL string
	keyEnv    string
	urlEnv    string
	authorize func(h http.Header, key string)
	// failure is an error body in the form that the provider's SDKs read.
	failure func(kind, code, message string) any
}

var providers = map[string]provider{
	ProviderAnthropic: {
		publicURL: "https://api.anthropic.com",
		keyEnv:    "ANTHROPIC_API_KEY", urlEnv: "ANTHROPIC_BASE_URL",
		authorize: func(h http.Header, key string) {
			h.Set("X-Api-Key", key)
			if h.Get("Anthropic-Version") == "" {
				h.Set("Anthropic-Version", "2023-06-01") // required by the API
			}
		},
		failure: func(kind, code, message string) any {
			return anthropicFailure{Type: "error", Error: failureDetail{Type: kind, Code: code, Message: message}}
		},
	},
	ProviderOpenAI: {
		publicURL: "https://api.openai.com/v1",
		keyEnv:    "OPENAI_API_KEY", urlEnv: "OPENAI_BASE_URL",
		authorize: func(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) },
		failure: func(kind, code, message string) any {
			return openAIFailure{Error: failureDetail{Type: kind, Code: code, Message: message}}
		},
	},
}

type failureDetail struct {
	Type    string `json:"type"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

type anthropicFailure struct {
	Type  string        `json:"type"`
	Error failureDetail `json:"error"`
}

type openAIFailure struct {
	Error failureDetail `json:"error"`
}

// UpstreamsFromEnv reads the variables that the providers' SDKs use. A provider with neither key nor URL is left out.
func UpstreamsFromEnv(getenv func(string) string) map[string]Upstream {
	out := map[string]Upstream{}
	for name, p := range providers {
		if u := (Upstream{BaseURL: getenv(p.urlEnv), Key: getenv(p.keyEnv)}); u != (Upstream{}) {
			out[name] = u
		}
	}
	return out
}

// target is an upstream that has been checked.
type target struct {
	provider
	name string
	base *url.URL
	key  string
}

func newTargets(upstreams map[string]Upstream) (map[string]target, error) {
	out := map[string]target{}
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		p, ok := providers[name]
		if !ok {
			return nil, fmt.Errorf("broker: the model provider %q is unknown", name)
		}
		u := upstreams[name]
		if u.BaseURL == "" {
			u.BaseURL = p.publicURL
		}
		base, err := url.Parse(strings.TrimRight(u.BaseURL, "/"))
		// The URL itself is not repeated: it may hold a password.
		if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
			return nil, fmt.Errorf("broker: the base URL of %s is not an http or https URL", name)
		}
		if base.User != nil || base.RawQuery != "" || base.Fragment != "" {
			return nil, fmt.Errorf("broker: the base URL of %s holds a user, a query or a fragment", name)
		}
		if strings.ContainsFunc(u.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("broker: the key of %s holds a character that no header may hold", name)
		}
		out[name] = target{provider: p, name: name, base: base, key: u.Key}
	}
	return out, nil
}
