package ws

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// Types of messages.
const (
	typeInit      = "connection_init"
	typeAck       = "connection_ack"
	typePing      = "ping"
	typePong      = "pong"
	typeSubscribe = "subscribe"
	typeNext      = "next"
	typeError     = "error"
	typeComplete  = "complete"
)

// maxID is the longest id of an operation, bytes as sent.
const maxID = 256

// message is one message of a client. Its parts are slices of what was parsed.
type message struct {
	kind    string
	id      string // decoded
	rawID   []byte // as sent, a JSON string
	payload []byte // JSON; nil where there is none
}

// Errors of a message that is closed with 4400. They quote nothing of it.
var (
	errNotUTF8    = errors.New("the message is not valid UTF-8")
	errNotJSON    = errors.New("the message is not a JSON object")
	errDepth      = errors.New("the message is nested too deep")
	errValues     = errors.New("the message has too many values")
	errType       = errors.New("the message has no type of a client")
	errID         = errors.New("the message needs an id, a string of 1 to 256 bytes")
	errPayload    = errors.New("the payload must be an object")
	errDocument   = errors.New("the payload's query must be a string")
	errOperation  = errors.New("the payload's operationName must be a string")
	errVariables  = errors.New("the payload's variables must be an object")
	errExtensions = errors.New("the payload's extensions must be an object")
)

// parseMessage reads a client's message: one JSON object in UTF-8 with a known type, the members that the type has to
// have, and nothing nested deeper than maxDepth. Other members are passed over. It keeps no copy of raw.
func parseMessage(raw []byte, maxDepth int) (m message, err error) {
	if err := checkJSON(raw, maxDepth); err != nil {
		return message{}, err
	}
	err = members(raw, func(name, value []byte) error {
		switch string(name) {
		case "type":
			return decodeString(value, &m.kind, errType)
		case "id":
			m.rawID = value
		case "payload":
			if m.payload = value; isNull(value) {
				m.payload = nil
			}
		}
		return nil
	})
	if err != nil {
		return message{}, err
	}
	switch m.kind {
	case typeInit, typePing, typePong:
		m.rawID = nil
	case typeSubscribe, typeComplete:
		if len(m.rawID) == 0 || len(m.rawID) > maxID+2 {
			return message{}, errID
		}
		if err := decodeString(m.rawID, &m.id, errID); err != nil {
			return message{}, err
		}
		if m.id == "" {
			return message{}, errID
		}
	default:
		return message{}, errType
	}
	switch {
	case m.kind == typeComplete:
		m.payload = nil
	case m.payload == nil && m.kind == typeSubscribe, m.payload != nil && m.payload[0] != '{':
		return message{}, errPayload
	}
	return m, nil
}

// request is the payload of subscribe.
type request struct {
	query      string
	operation  string
	variables  map[string]any
	extensions map[string]any
}

// parseRequest reads the payload of a subscribe message, which parseMessage has checked to be an object.
func parseRequest(payload []byte) (r request, err error) {
	var query []byte
	err = members(payload, func(name, value []byte) error {
		switch string(name) {
		case "query":
			query = value
		case "operationName":
			if r.operation = ""; !isNull(value) {
				return decodeString(value, &r.operation, errOperation)
			}
		case "variables":
			return decodeObject(value, &r.variables, errVariables)
		case "extensions":
			return decodeObject(value, &r.extensions, errExtensions)
		}
		return nil
	})
	if err != nil {
		return request{}, err
	}
	if query == nil {
		return request{}, errDocument
	}
	return r, decodeString(query, &r.query, errDocument)
}

// parseInit reads the authorization from the payload of connection_init: the member Authorization, else authorization,
// else none; one that is no string is none that anybody accepts.
func parseInit(payload []byte) (authorization string, given bool) {
	if payload == nil {
		return "", false
	}
	var upper, lower []byte
	_ = members(payload, func(name, value []byte) error { // no error of ours
		switch {
		case string(name) == "Authorization":
			upper = value
		case string(name) == "authorization":
			lower = value
		}
		return nil
	})
	for _, value := range [][]byte{upper, lower} {
		if value != nil && !isNull(value) {
			_ = decodeString(value, &authorization, errPayload)
			return authorization, true
		}
	}
	return "", false
}

// checkJSON checks that raw is one JSON object of UTF-8 within the depth.
func checkJSON(raw []byte, maxDepth int) error {
	depth, values := extentOf(raw)
	switch {
	case !utf8.Valid(raw):
		return errNotUTF8
	case depth > maxDepth:
		return errDepth
	case values > maxValues:
		return errValues
	case !json.Valid(raw):
		return errNotJSON
	}
	if at := skipSpace(raw, 0); raw[at] != '{' {
		return errNotJSON
	}
	return nil
}

// maxValues is how many values a message may have, about. A value of two bytes takes fifty when it is decoded.
const maxValues = 1 << 16

// extentOf counts how deep brackets nest outside strings, and the values within them, about. It does not say that raw is
// JSON.
func extentOf(raw []byte) (deepest, values int) {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = endOfString(raw, i) - 1
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		}
	}
	return deepest, values
}

// members calls see for each member of raw, which must be a JSON object that is valid, in order; it does not go deeper,
// nor does it allocate unless a name has escapes.
func members(raw []byte, see func(name, value []byte) error) error {
	i := skipSpace(raw, 0) + 1 // behind the bracket
	for {
		if i = skipSpace(raw, i); raw[i] == '}' {
			return nil
		}
		if raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
		end := endOfString(raw, i)
		name := raw[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			var decoded string
			if err := json.Unmarshal(raw[i:end], &decoded); err != nil {
				return errNotJSON
			}
			name = []byte(decoded)
		}
		i = skipSpace(raw, skipSpace(raw, end)+1) // behind the colon
		end = endOfValue(raw, i)
		if err := see(name, raw[i:end:end]); err != nil {
			return err
		}
		i = end
	}
}

// endOfValue is the index behind the value that begins at i, of valid JSON.
func endOfValue(raw []byte, i int) int {
	switch raw[i] {
	case '"':
		return endOfString(raw, i)
	case '{', '[':
		for depth := 0; i < len(raw); i++ {
			switch raw[i] {
			case '"':
				i = endOfString(raw, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
		return len(raw)
	}
	for i < len(raw) {
		switch raw[i] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return i
		}
		i++
	}
	return i
}

// endOfString is the index behind the string that begins at i; the length of raw where it does not end.
func endOfString(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

func skipSpace(raw []byte, i int) int {
	for i < len(raw) {
		switch raw[i] {
		case ' ', '\t', '\r', '\n':
			i++
		default:
			return i
		}
	}
	return i
}

func isNull(raw []byte) bool { return string(raw) == "null" }

// decodeString reads a value that must be a string.
func decodeString(raw []byte, into *string, otherwise error) error {
	if raw[0] != '"' || json.Unmarshal(raw, into) != nil {
		return otherwise
	}
	return nil
}

// decodeObject reads a value that must be an object or null. Numbers keep their digits.
func decodeObject(raw []byte, into *map[string]any, otherwise error) error {
	*into = nil
	if isNull(raw) {
		return nil
	}
	if raw[0] != '{' {
		return otherwise
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(into) != nil {
		return otherwise
	}
	return nil
}
