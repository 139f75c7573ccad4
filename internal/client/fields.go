package client

// Fragments for queries and subscriptions that are written elsewhere: what Event and Interrupt decode.
const (
	EventFields     = eventFields
	InterruptFields = interruptFields
)
