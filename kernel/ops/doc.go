// Package ops is the table of operations on single elements. An [Op] has its expressions in the language of package
// text, by the kind of number that is computed in, and the rule by which its result has a type.
package ops
