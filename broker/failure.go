package broker

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Bounds of a provider's error.
const (
	maxFailureBytes = 64 << 10
	maxMessageBytes = 2000
)

// opaque are the answers that tell of the deployment instead of the call; providers even repeat parts of a refused key.
// The worker gets its status, and words of ours.
var opaque = map[int]refusal{
	http.StatusUnauthorized:    {kind: "authentication_error", code: "upstream_credential", message: "the model provider refused this deployment's credential"},
	http.StatusForbidden:       {kind: "permission_error", code: "upstream_permission", message: "the model provider does not permit this call to this deployment"},
	http.StatusPaymentRequired: {kind: "billing_error", code: "upstream_billing", message: "the model provider has a billing problem with this deployment"},
}

// passFailure answers with the provider's status and what its SDKs read of an error: type, code and message, without
// keys, addresses and account names. A redirect is not followed and is a failure of the gateway.
func (b *Broker) passFailure(w http.ResponseWriter, res *http.Response, t target) {
	no := refusal{status: res.StatusCode, kind: "api_error", message: "the model provider answered with an error"}
	if res.StatusCode < 400 {
		b.refuse(w, t.provider, refusal{http.StatusBadGateway, "api_error", "upstream_redirect", "the model provider answered with a redirect"})
		return
	}
	if fixed, ok := opaque[res.StatusCode]; ok {
		fixed.status = res.StatusCode
		b.refuse(w, t.provider, fixed)
		return
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxFailureBytes))
	var body struct {
		Error struct {
			Type    string          `json:"type"`
			Code    json.RawMessage `json:"code"` // a string, a number or null
			Message string          `json:"message"`
		} `json:"error"`
	}
	if err == nil && json.Unmarshal(raw, &body) == nil && body.Error.Message != "" {
		no.message = redact(body.Error.Message, t)
		no.code = token(strings.Trim(string(body.Error.Code), `"`))
		if kind := token(body.Error.Type); kind != "" {
			no.kind = kind
		}
	}
	b.refuse(w, t.provider, no)
}

var (
	tokenPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	keyShapes    = regexp.MustCompile(`\b(?:sk|rk|pk)-[A-Za-z0-9*_.-]{3,}|\b(?:org|proj|user)[-_][A-Za-z0-9]{6,}`)
	urlShapes    = regexp.MustCompile(`\bhttps?://[^\s"']+`)
)

func token(s string) string {
	if s == "null" || !tokenPattern.MatchString(s) {
		return ""
	}
	return s
}

// redact takes out of a message what the worker must not learn: the key, whatever looks like one, account names, and
// where the provider is reached.
func redact(s string, t target) string {
	const gone = "[redacted]"
	if t.key != "" {
		s = strings.ReplaceAll(s, t.key, gone)
	}
	s = urlShapes.ReplaceAllString(s, gone)
	s = strings.ReplaceAll(s, t.base.Host, gone)
	s = strings.ReplaceAll(s, t.base.Hostname(), gone)
	s = keyShapes.ReplaceAllString(s, gone)
	if len(s) > maxMessageBytes {
		s = s[:maxMessageBytes]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
