// SPDX-License-Identifier: Apache-2.0

// Package sql92 compiles the SQL92 expressions by which consumers choose messages, and evaluates them on the
// properties of a message as they are stored.
//
// The grammar, from what binds least to what binds most; keywords in any case, property names as they are:
//
//	expression = and { OR and }
//	and        = equality { AND equality }
//	equality   = comparison { ( "=" | "<>" ) comparison | IS [ NOT ] NULL }
//	comparison = unary { ( ">" | ">=" | "<" | "<=" ) unary
//	                   | [ NOT ] BETWEEN unary AND unary
//	                   | [ NOT ] IN "(" string { "," string } ")"
//	                   | [ NOT ] ( CONTAINS | STARTSWITH | ENDSWITH ) string }
//	unary      = ( "+" | "-" | NOT ) unary | primary
//	primary    = string | integer | float | TRUE | FALSE | NULL | property | "(" expression ")"
//	string     = "'" { any character but "'", or "''" } "'"
//	integer    = ( "0" | "1"…"9" { digit } [ "l" | "L" ] )
//	float      = digits "." [ digits ] [ exponent ] | "." digits [ exponent ] | digits exponent
//	property   = ( letter | "_" | "$" ) { letter | digit | "_" | "$" }
//
// A comment is "--" to the end of the line, or "/*" to "*/". NOT binds to the next operand alone, so that
// NOT a = 1 compares the negation of a with 1.
//
// Values. A property is a string, or NULL when the message has none of that name. An integer is 32 or 64 bits
// wide, a float 64 bits. A property that stands alone as a condition is NULL or FALSE, never TRUE. An
// evaluation ends TRUE, FALSE, NULL or failed; a message is wanted if and only if it ends TRUE. What decides:
//
//   - AND and OR know three values, and do not evaluate the right side when the left one decides.
//   - = is TRUE when both sides are NULL, NULL when only the left one is, FALSE when only the right one is.
//     <> is its negation. IS NULL and IS NOT NULL are never NULL.
//   - > >= < <= are NULL when a side is NULL, the left one first.
//   - Two kinds of numbers are compared as the wider kind. A string is converted to the kind of what it is
//     compared with, by Java's rules: "5" = 5, but comparing "5.0" or "x" with 5 fails, and so does comparing
//     a boolean on the left with a string. > >= < <= of two strings compare them as floats. A failure ends
//     the whole evaluation: a = 5 OR b = 6 is not TRUE when a is "x".
//   - IN is NULL for a missing property; CONTAINS and its like, negated or not, are FALSE for one, and FALSE
//     when they look for the empty string.
//   - Minus makes NULL of everything that is not a number, also of a property.
//
// An expression that can never be right is refused when it is compiled: NULL as an operand of = or <>, a
// string, boolean or condition as an operand of > >= < <= or BETWEEN, BETWEEN constants in descending order,
// IN on anything but a property, an integer beyond 64 bits, a float that is infinite or not at least 4.9E-324
// (also 0.0).
//
// Source: filter/parser/SelectorParser.jj and filter/expression/*.java of Apache RocketMQ; testdata/golden.txt
// holds its answers. Known differences: an expression must end where it is understood to end (there, what
// follows the longest expression is ignored, so that "a = 1) OR b = 2" means a = 1); size and nesting have
// limits.
package sql92
