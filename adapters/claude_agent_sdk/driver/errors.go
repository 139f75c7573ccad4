package driver

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/harness-engine/harness-engine/adapters/acp"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

// errorClasses are what the bridge's errors mean. It answers a failed call of the model with an internal error whose data
// name a kind, and whose message is the harness's own sentence with the HTTP status in it. Kind and status are read, the
// sentence is never shown: it holds the provider's words and the endpoint's address.
var errorClasses = []acp.ErrorClass{
	{Match: said("Reached maximum number of turns"), Stop: "max_turn_requests"},
	status("Connection to the API was lost", event.CategoryUnavailable, "model_stream_cut", "The connection to the model endpoint was lost before the answer was complete.", true),
	status("Connection error", event.CategoryUnavailable, "model_unavailable", "The model endpoint failed.", true),
	byStatus("400|422", event.CategoryConfiguration, "model_request_refused", "The model endpoint refused the request as malformed or unsuitable for the model.", false),
	byStatus("401", event.CategoryAuthentication, "model_authentication_failed", "The model endpoint did not accept the credential.", false),
	byStatus("402", event.CategoryConfiguration, "model_billing", "The model endpoint asks for payment.", false),
	byStatus("403", event.CategoryAuthorization, "model_access_denied", "The model endpoint does not allow this use of the model.", false),
	byStatus("404", event.CategoryConfiguration, "model_not_found", "The model endpoint does not know the model.", false),
	byStatus("408|504", event.CategoryTimeout, "model_timeout", "The model endpoint did not answer in time.", true),
	byStatus("413", event.CategoryConfiguration, "model_request_too_large", "The request is too large for the model endpoint.", false),
	byStatus("429", event.CategoryThrottled, "model_throttled", "The model endpoint asks to slow down.", true),
	byStatus("4..", event.CategoryConfiguration, "model_request_refused", "The model endpoint refused the request.", false),
	byStatus("5..", event.CategoryUnavailable, "model_unavailable", "The model endpoint failed.", true),
	status("Request too large", event.CategoryConfiguration, "model_request_too_large", "The request is too large for the model endpoint.", false),
	status("Prompt is too long", event.CategoryConfiguration, "model_request_too_large", "The request is too large for the model endpoint.", false),
	status("timed out", event.CategoryTimeout, "model_timeout", "The model endpoint did not answer in time.", true),
	byKind("model_not_found", event.CategoryConfiguration, "model_not_found", "The model endpoint does not know the model.", false),
	byKind("invalid_request", event.CategoryConfiguration, "model_request_refused", "The model endpoint refused the request.", false),
	byKind("max_output_tokens", event.CategoryConfiguration, "model_request_refused", "The model endpoint refused the request.", false),
	byKind("billing_error", event.CategoryConfiguration, "model_billing", "The model endpoint asks for payment.", false),
	byKind("authentication_failed", event.CategoryAuthentication, "model_authentication_failed", "The model endpoint did not accept the credential.", false),
	byKind("cloud_credential_error", event.CategoryAuthentication, "model_authentication_failed", "The model endpoint did not accept the credential.", false),
	byKind("oauth_org_not_allowed", event.CategoryAuthorization, "model_access_denied", "The model endpoint does not allow this use of the model.", false),
	byKind("account_on_hold", event.CategoryAuthorization, "model_access_denied", "The model endpoint does not allow this use of the model.", false),
	byKind("verification_required", event.CategoryAuthorization, "model_access_denied", "The model endpoint does not allow this use of the model.", false),
	byKind("rate_limit", event.CategoryThrottled, "model_throttled", "The model endpoint asks to slow down.", true),
	byKind("overloaded", event.CategoryUnavailable, "model_unavailable", "The model endpoint failed.", true),
	byKind("server_error", event.CategoryUnavailable, "model_unavailable", "The model endpoint failed.", true),
	byKind("transport_lost", event.CategoryUnavailable, "harness_exited", "The harness process ended.", true),
	byKind("worker_shutdown", event.CategoryUnavailable, "harness_exited", "The harness process ended.", true),
	byKind("incomplete_tool_call", event.CategoryProtocol, "model_answer_invalid", "The answer of the model cannot be understood.", false),
	status("process exited unexpectedly", event.CategoryUnavailable, "harness_exited", "The harness process ended.", true),
	// An error inside of the answer, whose kind the harness does not know.
	status("API Error: ", event.CategoryUnavailable, "model_unavailable", "The model endpoint failed.", true),
}

type matcher = func(message string, data json.RawMessage) bool

func said(words string) matcher {
	return func(message string, _ json.RawMessage) bool { return strings.Contains(message, words) }
}

func class(m matcher, c event.Category, code, message string, retryable bool) acp.ErrorClass {
	return acp.ErrorClass{Match: m, As: worker.Failure{Category: c, Code: code, Message: message, Retryable: retryable}}
}

func status(words string, c event.Category, code, message string, retryable bool) acp.ErrorClass {
	return class(said(words), c, code, message, retryable)
}

// byStatus matches the HTTP status in the harness's own sentence, which comes first: "API Error: 400 ..." or
// "API Error: Request rejected (429) ...".
func byStatus(statuses string, c event.Category, code, message string, retryable bool) acp.ErrorClass {
	pattern := regexp.MustCompile(`API Error: (?:Request rejected \()?(?:` + statuses + `)\b`)
	return class(func(text string, _ json.RawMessage) bool { return pattern.MatchString(text) }, c, code, message, retryable)
}

func byKind(kind string, c event.Category, code, message string, retryable bool) acp.ErrorClass {
	return class(func(_ string, data json.RawMessage) bool {
		var d struct {
			ErrorKind string `json:"errorKind"`
		}
		return json.Unmarshal(data, &d) == nil && d.ErrorKind == kind
	}, c, code, message, retryable)
}

// ownMessage is the form of the id of a message that the harness wrote itself; the model's have the provider's.
var ownMessage = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
