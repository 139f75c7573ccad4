package acp

// Limits of what an agent may send. Above the counts its process is ended and the turn fails: an agent that breaks
// the protocol that often is not doing what anybody asked for.
const (
	maxLine      = 4 << 20  // bytes of one line of the agent
	maxSent      = 20 << 20 // bytes of one line of ours: attachments (harness.MaxFilesBytes) in base64 are the most of it
	maxGarbage   = 64       // lines in a process's life that are not JSON-RPC
	maxMalformed = 64       // updates in a turn that do not have the protocol's form
	maxReplies   = 64       // answers that wait for the agent to read them
	maxCalls     = 16_384   // tool calls in a turn
	maxMessages  = 32_768   // messages and thoughts in a turn
	maxHeld      = 64       // synthetic messages that are held back at a time
	maxAsks      = 64       // requests to a person that wait at a time
	maxBacklog   = 4 << 20  // bytes that the agent may say while its turn waits for a person
)

// Limits of what becomes part of an event; they lie within event.Bounds, so that the validator never refuses what the
// driver yields.
const (
	maxID         = 128
	maxTitle      = 1 << 10
	maxDelta      = 16 << 10
	maxStepDeltas = 16        // deltas of one step
	maxResult     = 60 << 10  // bytes of a tool result before the validator fits it into its event
	maxMessage    = 2 << 10   // bytes of a tool error
	maxArguments  = 200 << 10 // bytes of a call's arguments; larger ones are left out with a warning
	maxJSONDepth  = 48
	maxPlan       = 128
	maxPlanBytes  = 16 << 10 // of all entries: cleaning and escaping can make three times as much of it
	maxOpenCalls  = 64
	maxOpenSpaces = 32
	maxDepth      = 16
	maxFact       = 512      // bytes of one fact
	maxAskedCalls = 32       // calls of one approval
	maxAskedArgs  = 32 << 10 // bytes of the arguments of a call in an approval; tool.started has longer ones
	maxAskedForm  = 8 << 10  // bytes of the JSON Schema of a call's arguments
)
