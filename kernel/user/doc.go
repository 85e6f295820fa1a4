// Package user translates users' functions, as torch.cuda.jiterator takes them, to the language of package text. [Call]
// writes them for a kernel, and [Operands] checks a text before it's compiled.
package user
