// SPDX-License-Identifier: Apache-2.0

package protocol

import "slices"

// LanguageCode says what the sender is written in.
type LanguageCode uint8

// String returns Apache's name of the language; unknown ones are OTHER, as they would be read.
func (l LanguageCode) String() string { return languageNames[languageOf(int64(l))] }

// ParseLanguage returns the language of that name. Unknown names are LanguageOther.
func ParseLanguage(name string) LanguageCode {
	return languageOf(int64(slices.Index(languageNames[:], name)))
}

// languageOf returns the language with that ordinal, LanguageOther when there is none.
func languageOf(ordinal int64) LanguageCode {
	if ordinal < 0 || ordinal >= int64(len(languageNames)) {
		return LanguageOther
	}
	return LanguageCode(ordinal)
}
