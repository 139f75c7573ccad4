package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Codes of the issues that Forbidden gives.
const (
	CodeSecretShaped    = "SECRET_SHAPED"    // looks like a credential
	CodeOperatorOwned   = "OPERATOR_OWNED"   // names or looks like a command, path, image, ARN or environment
	CodeDirectionMarks  = "DIRECTION_MARKS"  // characters that reorder what is read
	CodeVariableUnused  = "VARIABLE_UNUSED"  // a variable that the prompt does not use
	CodePromptInvalid   = "PROMPT_INVALID"   // a placeholder that cannot be rendered
	CodeConfirmRequired = "CONFIRM_REQUIRED" // the save needs a person's word
	CodeHarnessChanged  = "HARNESS_CHANGED"  // existing conversations stay on the old harness
)

// shape is a kind of content that a blueprint must not hold. The value is never repeated in a message.
type shape struct {
	what    string
	code    string
	pattern *regexp.Regexp
}

// secretShapes are forms of credentials that providers document, precise enough to be looked for in prose.
var secretShapes = []shape{
	{"a private key", CodeSecretShaped, regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY`)},
	{"an API key", CodeSecretShaped, regexp.MustCompile(`\b(?:sk|rk|pk)-[A-Za-z0-9_-]{20,}`)},
	{"an AWS access key", CodeSecretShaped, regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`)},
	{"a GitHub token", CodeSecretShaped, regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})`)},
	{"a Slack token", CodeSecretShaped, regexp.MustCompile(`\bxox[abeoprs]-[A-Za-z0-9-]{10,}`)},
	{"a Google API key", CodeSecretShaped, regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}`)},
	{"a signed token", CodeSecretShaped, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}`)},
	{"a bearer token", CodeSecretShaped, regexp.MustCompile(`(?i)\bbearer\s+[A-Za-z0-9._~+/-]{20,}`)},
	{"a URL with a password", CodeSecretShaped, regexp.MustCompile(`\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@`)},
}

// valueShapes are looked for in option values only: in prose they are ordinary.
var valueShapes = append(slices.Clone(secretShapes),
	shape{"an ARN", CodeOperatorOwned, regexp.MustCompile(`(?i)\barn:[a-z0-9-]+:[a-z0-9-]+:`)},
	shape{"an absolute path", CodeOperatorOwned, regexp.MustCompile(`^(?:~?/|~$|[A-Za-z]:[\\/]|\\\\|file:)`)},
	shape{"a path that climbs", CodeOperatorOwned, regexp.MustCompile(`(?:^|[\\/])\.\.(?:[\\/]|$)`)},
	shape{"a command substitution", CodeOperatorOwned, regexp.MustCompile("\\$\\(|\\$\\{|`[^`]+`")},
	shape{"a shell command", CodeOperatorOwned, regexp.MustCompile(`(?:^|[;&|]\s*)(?:sudo|bash|sh|zsh|rm|curl|wget|chmod|eval|exec|powershell|cmd\.exe)\s+\S|#!`)},
	shape{"a data or script URL", CodeOperatorOwned, regexp.MustCompile(`(?i)^(?:javascript|data|vbscript):`)},
)

// secretKeys and operatorKeys are names of option keys, as words in lower case without separators.
var secretKeys = []string{
	"apikey", "secret", "password", "passwd", "passphrase", "credential", "privatekey", "accesskey", "authorization",
	"bearer", "authtoken", "accesstoken", "refreshtoken", "idtoken", "sessiontoken",
}

var operatorKeys = map[string]bool{
	"command": true, "cmd": true, "args": true, "argv": true, "exec": true, "executable": true, "binary": true,
	"script": true, "shell": true, "entrypoint": true, "env": true, "environ": true, "environment": true,
	"image": true, "volume": true, "volumes": true, "mount": true, "mounts": true, "path": true, "cwd": true,
	"workdir": true, "workingdirectory": true, "arn": true, "rolearn": true, "namespace": true,
	"serviceaccount": true, "runtimeclass": true, "podtemplate": true, "baseurl": true, "endpoint": true,
	"proxy": true, "headers": true,
}

// Forbidden finds what a blueprint must not hold whatever the harness: fields named or shaped like credentials,
// commands, paths, ARNs, images or environments. Values are never repeated.
func Forbidden(b Blueprint) []Issue {
	var out []Issue
	prose := func(path string, step Step, s string) {
		for _, sh := range secretShapes {
			if sh.pattern.MatchString(s) {
				out = append(out, forbidden(path, step, sh))
			}
		}
	}
	prose("name", StepBasic, b.Name)
	prose("description", StepBasic, b.Description)
	prose("prompt.system", StepInstructions, b.Prompt.System)
	for _, name := range slices.Sorted(maps.Keys(b.Prompt.Variables)) {
		prose("prompt.variables."+name, StepInstructions, b.Prompt.Variables[name])
	}
	prose("model.id", StepBasic, b.Model.ID)
	if strings.HasPrefix(strings.ToLower(b.Model.ID), "arn:") {
		out = append(out, forbidden("model.id", StepBasic, shape{what: "an ARN", code: CodeOperatorOwned}))
	}
	var options any
	if b.Harness.Options != nil && json.Unmarshal(b.Harness.Options, &options) == nil {
		out = append(out, forbiddenOptions(optionsField, options)...)
	}
	return out
}

func forbidden(path string, step Step, sh shape) Issue {
	return Issue{
		Path: path, Step: step, Code: sh.code, Severity: SeverityError,
		Message: fmt.Sprintf("holds what looks like %s; a blueprint holds none", sh.what),
	}
}

func forbiddenOptions(path string, v any) []Issue {
	var out []Issue
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := path + "." + key
			if issue, bad := keyIssue(at, key); bad {
				out = append(out, issue)
				continue
			}
			out = append(out, forbiddenOptions(at, v[key])...)
		}
	case []any:
		for i, item := range v {
			out = append(out, forbiddenOptions(path+"["+strconv.Itoa(i)+"]", item)...)
		}
	case string:
		for _, sh := range valueShapes {
			if sh.pattern.MatchString(v) {
				return []Issue{forbidden(path, StepAdvanced, sh)}
			}
		}
	}
	return out
}

func keyIssue(path, key string) (Issue, bool) {
	plain := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == '.' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(key))
	issue := Issue{
		Path: path, Step: StepAdvanced, Severity: SeverityError,
		Fixes: []Fix{{Label: "Remove it", Path: path, Value: json.RawMessage(`null`)}},
	}
	for _, s := range secretKeys {
		if strings.Contains(plain, s) || plain == "token" {
			issue.Code, issue.Message = CodeSecretShaped, "is named like a credential; a blueprint holds none"
			return issue, true
		}
	}
	if operatorKeys[plain] {
		issue.Code, issue.Message = CodeOperatorOwned, "is named like something that belongs to the operator"
		return issue, true
	}
	return Issue{}, false
}
