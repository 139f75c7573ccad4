package resolvers

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/engine/problem"
	"github.com/harness-engine/harness-engine/graph/model"
)

// Bounds of a page.
const (
	maxFirst       = 100
	maxCursorBytes = 512
	// maxRounds is how many times a list that is filtered by permission is read on to fill a page.
	maxRounds = 4
)

// checkFirst checks a page size.
func checkFirst(first int64, most int) (int, error) { return checkSize("first", first, most) }

func checkSize(argument string, size int64, most int) (int, error) {
	if size < 1 || size > int64(most) {
		return 0, problem.Field(argument, "must be from 1 to %d", most)
	}
	return int(size), nil
}

// A cursor is the list's name and the place in it, so that a cursor of one list is refused by another.
func encodeCursor(list string, place ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(list + "\x00" + strings.Join(place, "\x00")))
}

// decodeCursor gives the place's parts, none for no cursor.
func decodeCursor(list string, cursor *string, parts int) ([]string, error) {
	return decodeCursorOf("after", list, cursor, parts)
}

// decodeCursorOf is decodeCursor of another argument than `after`.
func decodeCursorOf(argument, list string, cursor *string, parts int) ([]string, error) {
	if cursor == nil {
		return nil, nil
	}
	bad := problem.Field(argument, "is not a cursor of this list")
	if len(*cursor) > maxCursorBytes {
		return nil, bad
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(*cursor)
	// A cursor has one spelling: the decoder itself steps over line ends.
	if err != nil || strings.ContainsAny(*cursor, "\r\n") {
		return nil, bad
	}
	place := strings.Split(string(raw), "\x00")
	if len(place) != parts+1 || place[0] != list {
		return nil, bad
	}
	return place[1:], nil
}

// decodeNumber reads a part that is a number, 0 or more.
func decodeNumber(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, problem.Field("after", "is not a cursor of this list")
	}
	return n, nil
}

func encodeTime(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

func decodeTime(s string) (time.Time, error) {
	ms, err := decodeNumber(s)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(ms).UTC(), nil
}

// pageInfo describes a page by its cursors.
func pageInfo(cursors []string, hasNext, hasPrevious bool) model.PageInfo {
	info := model.PageInfo{HasNextPage: hasNext, HasPreviousPage: hasPrevious}
	if len(cursors) > 0 {
		info.StartCursor, info.EndCursor = &cursors[0], &cursors[len(cursors)-1]
	}
	return info
}

// collect fills a page of first items from a list that is read in pieces and of which not everything may be shown.
// read gives up to limit items after the one given, nil at the start; keep drops what may not be shown. It reports
// whether there is more to read. A page may be short, even empty, while there is more.
func collect[T any](first int, after *T, read func(after *T, limit int) ([]T, error), keep func([]T) ([]T, error)) (page []T, last *T, more bool, err error) {
	last = after
	for range maxRounds {
		// One more than fits says whether there is more.
		items, err := read(last, first-len(page)+1)
		if err != nil {
			return nil, nil, false, err
		}
		if more = len(items) > first-len(page); more {
			items = items[:len(items)-1]
		}
		if len(items) > 0 {
			last = &items[len(items)-1]
		}
		kept, err := keep(items)
		if err != nil {
			return nil, nil, false, err
		}
		if page = append(page, kept...); !more || len(page) == first {
			break
		}
	}
	return page, last, more, nil
}
