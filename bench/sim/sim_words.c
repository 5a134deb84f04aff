/*
 * sim_words.c - the words that answers are made of.
 */
#include "bench/sim/sim_token.h"

uint32_t kvb_token_generate(uint64_t *state, uint32_t position)
{
	static const char words[64][5] = {" the", " sun", " and", " sea", " was", " old", " one",
		" day", " for", " his", " her", " our", " way", " big", " sky", " saw", " set",
		" out", " far", " now", " new", " had", " few", " men", " who", " led", " dog",
		" cat", " fox", " ran", " all", " but", " not", " you", " can", " see", " how",
		" why", " say", " yes", " air", " ice", " oak", " elm", " red", " dry", " wet",
		" hot", " ten", " two", " six", " may", " let", " get", " put", " try", " ask",
		" own", " odd", " end", " top", " low", " hay", " rye"};
	uint64_t x = *state + UINT64_C(0x9e3779b97f4a7c15) * ((uint64_t)position + 1);
	const char *word;

	/* splitmix64: any state and position give well-mixed bits */
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	word = words[(x ^ x >> 31) & 63];
	return (uint32_t)word[0] << 21 | (uint32_t)word[1] << 14 | (uint32_t)word[2] << 7 |
	       (uint32_t)word[3];
}
