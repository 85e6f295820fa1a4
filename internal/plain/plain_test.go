package plain

import "testing"

func TestPlain(t *testing.T) {
	for text, want := range map[string][2]string{
		"":                        {"", ""},
		"plain, naïve, 日本":        {"plain, naïve, 日本", "plain, naïve, 日本"},
		"\x1b]0;title\a\x1b[2J":   {`\x1b]0;title\a\x1b[2J`, `\x1b]0;title\a\x1b[2J`},
		"a\n\tb\r":                {`a\n\tb\r`, "a\n\tb" + `\r`},
		"\u202eturned\u2028":      {`\u202eturned\u2028`, `\u202eturned\u2028`},
		"\x9b31m is no rune \xff": {`\x9b31m is no rune \xff`, `\x9b31m is no rune \xff`},
	} {
		if got := Line(text); got != want[0] {
			t.Errorf("Line(%q) = %q", text, got)
		}
		if got := Text(text); got != want[1] {
			t.Errorf("Text(%q) = %q", text, got)
		}
	}
}
