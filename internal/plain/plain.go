// Package plain makes text from outside, of a peer, a file or a child process, fit for a terminal:
//
//	plain.Line("a\x1b[2J\nb") // `a\x1b[2J\nb`, one line
//	plain.Text("a\x1b[2J\nb") // `a\x1b[2J` and b, two lines
//
// Characters that aren't printable are escaped, among them those that move a cursor or turn text around.
package plain

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is text as one line.
func Line(text string) string {
	return escaped(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Text is text that keeps its ends of lines and tabs.
func Text(text string) string {
	return escaped(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
}

func escaped(text string, hidden func(rune) bool) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[i])|0x100, 16)[1:])
		case hidden(r):
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
