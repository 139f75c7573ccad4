package event

// Rehearse judges events as Append would, and gives them as they would be in the log. Nothing is written and the writer
// is as it was before. It must not be called while an append is in progress. What has to be decided before a terminal
// is logged (the head that it goes with) is decided on what it returns.
func (w *Writer) Rehearse(events []Event) ([]Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	point, added, out, err := w.judge(events)
	if err == nil {
		w.undo(point, added)
	}
	return out, err
}
