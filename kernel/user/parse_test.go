package user

import (
	"strings"
	"testing"
)

// A text without a function is refused as other texts are.
func TestUserWithoutFunction(t *testing.T) {
	for _, text := range []string{"", " \n", "// template\n", "/* template", "/*/ template", "/**/"} {
		if _, _, err := Operands(text); err == nil || !strings.Contains(err.Error(), "there is none") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A comment's begin isn't its end.
func TestUserComment(t *testing.T) {
	const text = "template <typename T> T f(T x) {\n/*/ return 1; /**/ return x; }"
	if _, _, err := Operands(text); err != nil {
		t.Error(err)
	}
	if got := joined(tokensOf(text)); strings.Contains(got, "1") || strings.Count(got, "\n") != 1 {
		t.Errorf("without comments: %q", got)
	}
}
