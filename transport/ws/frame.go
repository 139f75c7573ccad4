package ws

import "encoding/binary"

// Frames are text messages of one frame without a mask, as servers send them (RFC 6455, section 5.2). They are built
// here, because what is in them is shared among sockets, and many go into one write.

const (
	opText  = 0x81 // with FIN
	opClose = 0x88
	opPong  = 0x8A
)

// maxFrameHeader is the longest header of a frame that a server sends.
const maxFrameHeader = 10

// appendHeader appends the header of a text frame with n bytes in it.
func appendHeader(b []byte, n int) []byte {
	b = append(b, opText)
	switch {
	case n < 126:
		return append(b, byte(n))
	case n < 1<<16:
		b = append(b, 126)
		return binary.BigEndian.AppendUint16(b, uint16(n))
	}
	b = append(b, 127)
	return binary.BigEndian.AppendUint64(b, uint64(n))
}

// Parts of messages. An id and a payload are JSON already.
const (
	beforeID        = `{"id":`
	beforeKind      = `,"type":"`
	beforePayload   = `","payload":`
	afterPayload    = `}`
	withoutPayload  = `"}`
	beforeSoleKind  = `{"type":"`
	messageOverhead = len(beforeID) + len(beforeKind) + len(beforePayload) + len(afterPayload)
)

// appendPrefix appends everything of a message to an operation that comes before its payload; behind the payload comes
// afterPayload.
func appendPrefix(b, rawID []byte, kind string, payload int) []byte {
	b = appendHeader(b, messageOverhead+len(rawID)+len(kind)+payload)
	b = append(b, beforeID...)
	b = append(b, rawID...)
	b = append(b, beforeKind...)
	b = append(b, kind...)
	return append(b, beforePayload...)
}

// appendMessage appends a message to an operation.
func appendMessage(b, rawID []byte, kind string, payload []byte) []byte {
	b = appendPrefix(b, rawID, kind, len(payload))
	b = append(b, payload...)
	return append(b, afterPayload...)
}

// appendComplete appends the message that ends an operation.
func appendComplete(b, rawID []byte) []byte {
	b = appendHeader(b, len(beforeID)+len(rawID)+len(beforeKind)+len(typeComplete)+len(withoutPayload))
	b = append(b, beforeID...)
	b = append(b, rawID...)
	b = append(b, beforeKind...)
	b = append(b, typeComplete...)
	return append(b, withoutPayload...)
}

// appendSole appends a message of the connection; payload may be nil.
func appendSole(b []byte, kind string, payload []byte) []byte {
	if payload == nil {
		b = appendHeader(b, len(beforeSoleKind)+len(kind)+len(withoutPayload))
		b = append(b, beforeSoleKind...)
		b = append(b, kind...)
		return append(b, withoutPayload...)
	}
	b = appendHeader(b, len(beforeSoleKind)+len(kind)+len(beforePayload)+len(payload)+len(afterPayload))
	b = append(b, beforeSoleKind...)
	b = append(b, kind...)
	b = append(b, beforePayload...)
	b = append(b, payload...)
	return append(b, afterPayload...)
}

// maxReason is the longest reason of a close frame (RFC 6455, section 5.5).
const maxReason = 123

// appendClose appends a close frame.
func appendClose(b []byte, code int, reason string) []byte {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	b = append(b, opClose, byte(2+len(reason)))
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	return append(b, reason...)
}

// appendControl appends a control frame; data is at most 125 bytes, as is that of the frame which it answers.
func appendControl(b []byte, op byte, data string) []byte {
	return append(append(b, op, byte(len(data))), data...)
}
