package acp

import (
	"encoding/json"
	"errors"
	"fmt"
)

// message is one JSON-RPC 2.0 message, undecoded.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *RPCError       `json:"error,omitempty"`
}

// kind of a message by JSON-RPC 2.0, section 4 and 5.
type kind int

const (
	kindInvalid kind = iota
	kindRequest
	kindNotification
	kindResponse
)

func (m message) kind() kind {
	hasID := len(m.ID) > 0 && string(m.ID) != "null"
	switch {
	case m.Method != "" && hasID:
		return kindRequest
	case m.Method != "":
		return kindNotification
	case hasID && (m.Error != nil || m.Result != nil):
		return kindResponse
	}
	return kindInvalid
}

// RPCError is an error that the agent answered with. Its message and data are not safe to show.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`

	said string // by the harness, in front of it
}

func (e *RPCError) Error() string { return fmt.Sprintf("agent error %d", e.Code) }

// Codes of JSON-RPC 2.0 and of the Agent Client Protocol.
const (
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeAuthRequired   = -32000
	codeNotFound       = -32002
	codeCancelled      = -32800
)

// outgoing is a message of ours.
type outgoing struct {
	JSONRPC string    `json:"jsonrpc"`
	ID      any       `json:"id,omitempty"`
	Method  string    `json:"method,omitempty"`
	Params  any       `json:"params,omitempty"`
	Result  any       `json:"result,omitempty"`
	Error   *RPCError `json:"error,omitempty"`
}

var errTooLong = errors.New("message exceeds the limit of a line")

// encode gives the line of a message.
func (o outgoing) encode() ([]byte, error) {
	o.JSONRPC = "2.0"
	line, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("failed to encode message: %w", err)
	}
	if len(line) >= maxSent {
		return nil, errTooLong
	}
	return append(line, '\n'), nil
}
