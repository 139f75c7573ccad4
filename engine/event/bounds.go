package event

// Bounds are the limits of one event and of one run's stream. A zero field means its default.
type Bounds struct {
	EventBytes     int // of one encoded event, with its time: 64 KiB
	IDBytes        int // of an id, a name or a code: 128
	DeltaBytes     int // of a text, reasoning or arguments delta; longer ones are split: 16 KiB
	ArgumentsBytes int // of a tool call's arguments given at once: 256 KiB; above DeltaBytes they become deltas
	CallBytes      int // of the arguments of one call in an interrupt: 32 KiB
	SchemaBytes    int // of the JSON Schema of these arguments: 8 KiB
	TitleBytes     int // of a tool's title, a form field's label, a plan entry, a choice; cut, a choice refused: 1 KiB
	MessageBytes   int // of a message of a warning, a tool.error or a run.error; cut: 4 KiB
	PromptBytes    int // of an interrupt's prompt; cut: 16 KiB
	DetailKeys     int // of a warning's details, and of a chunk's facts: 32
	DetailBytes    int // of one value of these; cut in details, refused in facts: 1 KiB
	NamespaceDepth int // of a namespace path: 16
	PlanEntries    int // 128
	FormFields     int // 64
	FormChoices    int // of one form field: 64
	Calls          int // of one interrupt: 32
	OpenSpans      int // text and reasoning spans open at once: 64
	OpenTools      int // 64
	OpenNamespaces int // 32
	RunIDs         int // different message, tool call and namespace ids in one run: 65,536
}

// DefaultBounds returns the defaults. IDBytes, NamespaceDepth and what may be open at once can only be lowered: with
// them the closings that precede a terminal always fit into the terminal's chunk (MaxChunkEvents, MaxChunkBytes).
func DefaultBounds() Bounds {
	return Bounds{
		EventBytes:     64 << 10,
		IDBytes:        128,
		DeltaBytes:     16 << 10,
		ArgumentsBytes: 256 << 10,
		CallBytes:      32 << 10,
		SchemaBytes:    8 << 10,
		TitleBytes:     1 << 10,
		MessageBytes:   4 << 10,
		PromptBytes:    16 << 10,
		DetailKeys:     32,
		DetailBytes:    1 << 10,
		NamespaceDepth: 16,
		PlanEntries:    128,
		FormFields:     64,
		FormChoices:    64,
		Calls:          32,
		OpenSpans:      64,
		OpenTools:      64,
		OpenNamespaces: 32,
		RunIDs:         65_536,
	}
}

// Least values that keep the repairs possible: a delta of DeltaBytes, escaped and in the deepest namespace, has to
// fit into EventBytes.
const (
	minEventBytes = 16 << 10
	minDeltaBytes = 16
)

// normalised fills zero fields with defaults and narrows what would contradict another bound.
func (b Bounds) normalised() Bounds {
	d := DefaultBounds()
	for _, f := range []struct {
		have *int
		def  int
		most int
	}{
		{&b.EventBytes, d.EventBytes, MaxChunkBytes / 2},
		{&b.IDBytes, d.IDBytes, d.IDBytes},
		{&b.DeltaBytes, d.DeltaBytes, MaxChunkBytes / 8},
		{&b.ArgumentsBytes, d.ArgumentsBytes, MaxChunkBytes / 4},
		{&b.CallBytes, d.CallBytes, MaxChunkBytes},
		{&b.SchemaBytes, d.SchemaBytes, MaxChunkBytes},
		{&b.TitleBytes, d.TitleBytes, MaxChunkBytes},
		{&b.MessageBytes, d.MessageBytes, MaxChunkBytes},
		{&b.PromptBytes, d.PromptBytes, MaxChunkBytes},
		{&b.DetailKeys, d.DetailKeys, 1 << 10},
		{&b.DetailBytes, d.DetailBytes, MaxChunkBytes},
		{&b.NamespaceDepth, d.NamespaceDepth, d.NamespaceDepth},
		{&b.PlanEntries, d.PlanEntries, 1 << 12},
		{&b.FormFields, d.FormFields, 1 << 12},
		{&b.FormChoices, d.FormChoices, 1 << 12},
		{&b.Calls, d.Calls, 1 << 12},
		{&b.OpenSpans, d.OpenSpans, d.OpenSpans},
		{&b.OpenTools, d.OpenTools, d.OpenTools},
		{&b.OpenNamespaces, d.OpenNamespaces, d.OpenNamespaces},
		{&b.RunIDs, d.RunIDs, 1 << 20},
	} {
		if *f.have <= 0 {
			*f.have = f.def
		}
		*f.have = min(*f.have, f.most)
	}
	b.EventBytes = max(b.EventBytes, minEventBytes)
	b.DeltaBytes = max(min(b.DeltaBytes, b.EventBytes/4), minDeltaBytes)
	return b
}
