/*
 * fragments_test.c - fragments stored at one position and loaded at another, for each layout and type; and that nothing
 * of them can be mistaken for exact chunks, another model's, or another tenant's.
 */
#include <stdlib.h>
#include <string.h>

#include "paged.h"
#include "support.h"
#include "tests/unit/suite.h"

static const char other_model[] = "{\"model_type\": \"llama\", \"head_dim\": 32, \"rope_theta\": 20000.0}";

/* --- a cache and its fragments ---------------------------------------------------------------- */

static struct rig rig;
static uint32_t tokens[TOKENS];

static struct kvt_fragments *fragments_of(uint32_t values, const char *text, uint8_t mark)
{
	struct kvt_fragments_config c;
	struct kvt_fragments *f;
	char why[KVT_FRAGMENT_WHY] = "";

	kvt_fragments_config_init(&c, sizeof(c));
	c.values = values;
	c.model = text;
	c.model_bytes = strlen(text);
	c.layers = LAYERS;
	c.heads = HEADS;
	c.head = c.value_head = HEAD;
	c.chunk_tokens = CHUNK_TOKENS;
	c.fingerprint.bytes[0] = mark;
	ck_assert_msg(kvt_fragments_create(rig.k, &c, &f, why) == KVT_OK, "%s", why);
	return f;
}

static struct kvt_fragment_text text_at(uint64_t position)
{
	return (struct kvt_fragment_text){
		.size = sizeof(struct kvt_fragment_text), .tokens = tokens, .count = TOKENS, .position = position};
}

static void begin(void)
{
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = i * i + 5;
	rig_init(&rig);
	rig_open(&rig);
}

static void end(void)
{
	rig_close(&rig);
}

static size_t found(struct kvt_fragments *f, const struct kvt_fragment_text *text)
{
	size_t n = 77;

	ck_assert_int_eq(kvt_fragments_find(f, text, 0, &n), KVT_OK);
	return n;
}

/* Stored in one layout, loaded in each. */
START_TEST(a_fragment_is_what_it_would_be_at_its_new_place)
{
	uint32_t values = (uint32_t)_i / LAYOUTS;
	struct kvt_fragments *f = fragments_of(values, paged_model, 1);
	struct kvt_fragment_text text = text_at(1000);
	struct kvt_fragments_stats stats = {.size = sizeof(stats)};
	struct paged from, to;
	size_t stored = 0, loaded = 0;

	paged_init(&from, _i % LAYOUTS, values);
	compute(&from, 21, text.position);
	ck_assert_uint_eq(found(f, &text), 0);
	ck_assert_int_eq(kvt_fragments_store(f, &text, &from.place, &stored), KVT_OK);
	ck_assert_uint_eq(stored, TOKENS);
	ck_assert_int_eq(kvt_fragments_store(f, &text, &from.place, &stored), KVT_OK); /* once is enough */
	for (int layout = 0; layout < LAYOUTS; layout++) {
		static const uint64_t positions[LAYOUTS] = {37, 1000, 90000};

		text = text_at(positions[layout]);
		paged_init(&to, layout, values);
		to.place.slot = 5;
		ck_assert_uint_eq(found(f, &text), TOKENS);
		ck_assert_int_eq(kvt_fragments_load(f, &text, 0, &to.place, &loaded), KVT_OK);
		ck_assert_uint_eq(loaded, TOKENS);
		check_place(&to, 5, text.position, 0, TOKENS);
		paged_finish(&to);
		paged_init(&to, layout, values);
		to.place.slot = 5;
		ck_assert_int_eq(kvt_fragments_load(f, &text, 70, &to.place, &loaded), KVT_OK);
		check_place(&to, 5, text.position, 70, TOKENS);
		paged_finish(&to);
	}
	ck_assert_int_eq(kvt_fragments_stats(f, &stats), KVT_OK);
	ck_assert_uint_eq(stats.stored_chunks, 3);
	ck_assert_uint_eq(stats.stored_tokens, TOKENS);
	ck_assert_uint_eq(stats.hit_tokens, 6 * TOKENS);
	ck_assert_uint_eq(stats.moved_bytes, 2 * (TOKENS + TOKENS - 70) * LAYERS * HEADS * HEAD * from.bytes);
	paged_finish(&from);
	kvt_fragments_destroy(f);
}
END_TEST

/* A fragment whose position is the same has the same bytes, and so are values always. */
START_TEST(without_a_move_not_a_bit_changes)
{
	struct kvt_fragments *f = fragments_of(KVT_FRAGMENT_BF16, paged_model, 1);
	struct kvt_fragment_text text = text_at(64);
	struct paged from, to;
	size_t loaded;

	paged_init(&from, ROWS, KVT_FRAGMENT_BF16);
	paged_init(&to, ROWS, KVT_FRAGMENT_BF16);
	compute(&from, 64, 64);
	to.place.slot = 64;
	ck_assert_int_eq(kvt_fragments_store(f, &text, &from.place, NULL), KVT_OK);
	ck_assert_int_eq(kvt_fragments_load(f, &text, 0, &to.place, &loaded), KVT_OK);
	for (uint32_t l = 0; l < LAYERS; l++) {
		ck_assert_mem_eq(from.keys[l], to.keys[l], (size_t)BLOCKS * BLOCK * HEADS * HEAD * 2);
		ck_assert_mem_eq(from.numbers[l], to.numbers[l], (size_t)BLOCKS * BLOCK * HEADS * HEAD * 2);
	}
	paged_finish(&from);
	paged_finish(&to);
	kvt_fragments_destroy(f);
}
END_TEST

static void store(struct kvt_fragments *f, const struct kvt_fragment_text *text)
{
	struct paged from;

	paged_init(&from, ROWS, KVT_FRAGMENT_F32);
	compute(&from, 0, text->position);
	ck_assert_int_eq(kvt_fragments_store(f, text, &from.place, NULL), KVT_OK);
	paged_finish(&from);
}

START_TEST(only_the_same_model_tenant_adapter_and_tokens_find_it)
{
	struct kvt_fragments *f = fragments_of(KVT_FRAGMENT_F32, paged_model, 1),
			     *turns = fragments_of(KVT_FRAGMENT_F32, other_model, 1),
			     *weights = fragments_of(KVT_FRAGMENT_F32, paged_model, 2),
			     *type = fragments_of(KVT_FRAGMENT_BF16, paged_model, 1);
	struct kvt_fragment_text text = text_at(0), other;

	store(f, &text);
	ck_assert_uint_eq(found(f, &text), TOKENS);
	ck_assert_uint_eq(found(turns, &text), 0);
	ck_assert_uint_eq(found(weights, &text), 0);
	ck_assert_uint_eq(found(type, &text), 0);
	other = text;
	other.tenant.bytes[3] = 1;
	ck_assert_uint_eq(found(f, &other), 0);
	other = text;
	other.lora = "adapter";
	other.lora_bytes = 7;
	ck_assert_uint_eq(found(f, &other), 0);
	other = text;
	other.count = TOKENS - 1;
	ck_assert_uint_eq(found(f, &other), 2 * CHUNK_TOKENS); /* whole chunks of the same beginning */
	tokens[1]++;
	ck_assert_uint_eq(found(f, &text), 0);
	tokens[1]--;
	ck_assert_uint_eq(found(f, &text), TOKENS);
	kvt_fragments_destroy(f);
	kvt_fragments_destroy(turns);
	kvt_fragments_destroy(weights);
	kvt_fragments_destroy(type);
}
END_TEST

/* Of its first chunk. */
static struct kvt_key key_in(const struct kvt_fragments *f, const struct kvt_fragment_text *text)
{
	struct kvt_key key;
	size_t n;

	ck_assert_int_eq(kvt_fragments_keys(f, text, &key, 1, &n), KVT_OK);
	ck_assert_uint_eq(n, 3);
	return key;
}

/* With all parts the same, names of fragments and of exact chunks differ. */
START_TEST(exact_chunks_and_fragments_never_meet)
{
	uint8_t chain[32], as_exact[32];
	struct kvt_key_parts parts = {
		.size = sizeof(parts), .hash_recipe = "tokens", .chain_id = chain, .chain_id_bytes = sizeof(chain)};
	struct kvt_key exact, fragment, none;

	kvt_fragment_chain_id(NULL, NULL, 0, tokens, TOKENS, chain);
	kvt_chain_id(NULL, tokens, TOKENS, as_exact);
	ck_assert_mem_ne(chain, as_exact, 32);
	kvt_fragment_chain_id(NULL, "", 0, tokens, TOKENS, as_exact);
	ck_assert_mem_ne(chain, as_exact, 32);
	ck_assert_int_eq(kvt_key_make(&parts, &exact), KVT_OK);
	ck_assert_int_eq(kvt_fragment_key(&parts, &fragment), KVT_OK);
	ck_assert_mem_ne(exact.bytes, fragment.bytes, 32);
	kvt_key_ends(&exact, &none);
	ck_assert_mem_ne(none.bytes, fragment.bytes, 32);
	parts.chain_id_bytes = 8;
	ck_assert_int_eq(kvt_fragment_key(&parts, &fragment), KVT_EINVAL);
}
END_TEST

START_TEST(what_was_blended_is_stored_nowhere)
{
	struct kvt_fragments *f = fragments_of(KVT_FRAGMENT_F32, paged_model, 1);
	struct kvt_fragment_text text = text_at(0);
	struct kvt_fragments_stats stats = {.size = sizeof(stats)};
	struct kvt_item item = {.size = sizeof(item), .key = key_of(1, 0), .bytes = CHUNK, .flags = KVT_ITEM_BLENDED};
	char *data = calloc(1, CHUNK);
	struct paged from;
	size_t stored = 77;

	paged_init(&from, ROWS, KVT_FRAGMENT_F32);
	compute(&from, 0, 0);
	text.blended = 1;
	ck_assert_int_eq(kvt_fragments_store(f, &text, &from.place, &stored), KVT_EINVAL);
	ck_assert_uint_eq(stored, 77);
	ck_assert_uint_eq(found(f, &text), 0);
	ck_assert_int_eq(kvt_fragments_stats(f, &stats), KVT_OK);
	ck_assert_uint_eq(stats.refused[KVT_FRAGMENT_BLENDED], 1);
	ck_assert_int_eq(kvt_put(rig.k, &item, data), KVT_EINVAL);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 1, NULL), 0);
	ck_assert_uint_eq(rig_stats(&rig).put_blended, 1);
	item.flags = 0;
	ck_assert_int_eq(kvt_put(rig.k, &item, data), KVT_OK);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 1, NULL), 1);
	free(data);
	paged_finish(&from);
	kvt_fragments_destroy(f);
}
END_TEST

/* A fragment under an engine's names would be published as what that engine can use. */
START_TEST(a_fragment_has_no_names_of_an_engine)
{
	struct kvt_fragments *f = fragments_of(KVT_FRAGMENT_F32, paged_model, 1);
	struct kvt_fragment_text text = text_at(0);
	struct kvt_blocks blocks = {.hashes = (const uint8_t *)"12345678", .hash_bytes = 8, .count = 1, .block_size = 16};
	struct kvt_item item = {.size = sizeof(item), .key = key_in(f, &text), .bytes = CHUNK, .blocks = &blocks};
	char *data = calloc(1, CHUNK);

	ck_assert_int_eq(kvt_put(rig.k, &item, data), KVT_EINVAL);
	item.key = key_of(1, 0);
	ck_assert_int_eq(kvt_put(rig.k, &item, data), KVT_OK);
	free(data);
	kvt_fragments_destroy(f);
}
END_TEST

START_TEST(the_configuration_says_how_to_cut)
{
	static const char yaml[] = "fragments: {enabled: true, cut: content, min_tokens: 2000, max_tokens: 64, recompute_share: 0.15}";
	struct kvt_fragments_settings s = {.size = sizeof(s)};
	struct kvt_config config;

	kvt_config_init(&config, sizeof(config));
	ck_assert_int_eq(kvt_fragments_settings(&config, &s), KVT_OK);
	ck_assert_uint_eq(s.enabled, 0);
	ck_assert_uint_eq(s.by, KVT_CUT_SEPARATOR);
	ck_assert_str_eq(s.separator, " # # ");
	ck_assert_double_eq(s.share, 0);
	ck_assert_int_eq(kvt_config_read(&config, "t", yaml, strlen(yaml), NULL), KVT_OK);
	ck_assert_int_eq(kvt_fragments_settings(&config, &s), KVT_OK);
	ck_assert(s.enabled == 1 && s.by == KVT_CUT_CONTENT && s.min_tokens == 2000 && s.average_tokens == 2000);
	ck_assert_uint_eq(s.max_tokens, 4000);
	ck_assert_double_eq(s.share, 0.15);
	kvt_config_finish(&config);
}
END_TEST

/* A chunk under a fragment's key whose header is not the fragment's: refused, erased, and not a byte of it is used. */
START_TEST(a_header_that_is_wrong_is_refused_and_erased)
{
	static const struct {
		size_t offset;
		enum kvt_fragment_refusal why;
	} wrong[] = {
		{offsetof(struct kvt_fragment_head, magic), KVT_FRAGMENT_HEADER},
		{offsetof(struct kvt_fragment_head, version), KVT_FRAGMENT_HEADER},
		{offsetof(struct kvt_fragment_head, position) + 7, KVT_FRAGMENT_HEADER},
		{offsetof(struct kvt_fragment_head, zero) + 43, KVT_FRAGMENT_HEADER},
		{offsetof(struct kvt_fragment_head, tokens), KVT_FRAGMENT_TOKENS},
		{offsetof(struct kvt_fragment_head, first), KVT_FRAGMENT_TOKENS},
		{offsetof(struct kvt_fragment_head, values), KVT_FRAGMENT_MODEL},
		{offsetof(struct kvt_fragment_head, layers), KVT_FRAGMENT_MODEL},
		{offsetof(struct kvt_fragment_head, model) + 31, KVT_FRAGMENT_MODEL},
	};
	struct kvt_fragments *f = fragments_of(KVT_FRAGMENT_F32, paged_model, 1);
	struct kvt_fragment_text text = text_at(0);
	struct kvt_key key = key_in(f, &text);
	uint64_t bytes = kvt_fragments_chunk_bytes(f, CHUNK_TOKENS);
	struct kvt_item item = {.size = sizeof(item), .key = key, .bytes = bytes};
	struct kvt_fragments_stats before = {.size = sizeof(before)}, after = before;
	struct kvt_lease *lease;
	char *data = malloc(bytes);
	struct paged to;
	size_t loaded = 77;

	store(f, &text);
	ck_assert_int_eq(kvt_get(rig.k, &key, 1, 0, &lease), KVT_OK);
	ck_assert_uint_eq(kvt_copy(lease, 0, data, bytes), bytes);
	kvt_release(rig.k, lease);
	ck_assert_int_eq(kvt_erase(rig.k, &key, 1, SECOND, &(size_t){0}), KVT_OK);
	data[wrong[_i].offset] = (char)(data[wrong[_i].offset] ^ 0x81);
	ck_assert_int_eq(kvt_put(rig.k, &item, data), KVT_OK);
	paged_init(&to, ROWS, KVT_FRAGMENT_F32);
	to.place.slot = 16;
	ck_assert_int_eq(kvt_fragments_stats(f, &before), KVT_OK);
	ck_assert_int_eq(kvt_fragments_load(f, &text, 0, &to.place, &loaded), KVT_MISS);
	ck_assert_uint_eq(loaded, 77);
	ck_assert_int_eq(kvt_fragments_stats(f, &after), KVT_OK);
	ck_assert_uint_eq(after.refused[wrong[_i].why], before.refused[wrong[_i].why] + 1);
	ck_assert_int_eq(to.keys[0][(to.ids[1] * BLOCK) * HEADS * HEAD * 4], 0x5a);
	ck_assert_uint_eq(found(f, &text), 0);
	free(data);
	paged_finish(&to);
	kvt_fragments_destroy(f);
}
END_TEST

START_TEST(a_fragment_comes_from_below_or_is_a_miss)
{
	struct kvt_fragments *f = fragments_of(KVT_FRAGMENT_F32, paged_model, 1);
	struct kvt_fragment_text text = text_at(0);
	struct kvt_key key;
	struct paged to;
	size_t loaded = 0, erased;

	key = key_in(f, &text);
	store(f, &text);
	rig_settle(&rig);
	rig_push_out(&rig);
	ck_assert(fake_has(fake_tier(), &key));
	paged_init(&to, ROWS, KVT_FRAGMENT_F32);
	to.place.slot = 16;
	text.position = 16;
	ck_assert_int_eq(kvt_fragments_load(f, &text, 0, &to.place, &loaded), KVT_OK);
	ck_assert_uint_eq(loaded, TOKENS);
	check_place(&to, 16, 16, 0, TOKENS);
	ck_assert_int_eq(kvt_erase_tenant(rig.k, &text.tenant, SECOND, &erased), KVT_OK);
	ck_assert_uint_eq(found(f, &text), 0);
	paged_finish(&to);
	kvt_fragments_destroy(f);
}
END_TEST

START_TEST(no_mistake_is_taken)
{
	struct kvt_fragments *f = fragments_of(KVT_FRAGMENT_F32, paged_model, 1), *none = NULL;
	struct kvt_fragment_text text = text_at(0);
	struct kvt_fragments_config c;
	char why[KVT_FRAGMENT_WHY] = "";
	struct paged p;
	size_t n = 77;

	paged_init(&p, ROWS, KVT_FRAGMENT_F32);
	p.place.slot = BLOCKS * BLOCK - TOKENS + 1;
	ck_assert_int_eq(kvt_fragments_store(f, &text, &p.place, &n), KVT_EINVAL);
	p.place.slot = UINT64_MAX;
	ck_assert_int_eq(kvt_fragments_load(f, &text, 0, &p.place, &n), KVT_EINVAL);
	p.place.slot = 0;
	p.ids[3] = BLOCKS;
	ck_assert_int_eq(kvt_fragments_load(f, &text, 0, &p.place, &n), KVT_EINVAL);
	p.ids[3] = -1;
	ck_assert_int_eq(kvt_fragments_load(f, &text, 0, &p.place, &n), KVT_EINVAL);
	p.ids[3] = 3;
	p.key_layers[1] = NULL;
	ck_assert_int_eq(kvt_fragments_store(f, &text, &p.place, &n), KVT_EINVAL);
	text.count = 0;
	ck_assert_int_eq(kvt_fragments_find(f, &text, 0, &n), KVT_EINVAL);
	ck_assert_uint_eq(n, 77);
	kvt_fragments_config_init(&c, sizeof(c));
	c.model = "{\"model_type\": \"bloom\"}";
	c.model_bytes = strlen(c.model);
	c.layers = c.heads = 1;
	c.head = c.value_head = 32;
	ck_assert_int_eq(kvt_fragments_create(rig.k, &c, &none, why), KVT_ENOTSUP);
	ck_assert_ptr_nonnull(strstr(why, "bloom"));
	c.model = paged_model;
	c.model_bytes = strlen(c.model);
	c.head = 64;
	ck_assert_int_eq(kvt_fragments_create(rig.k, &c, &none, why), KVT_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "64 values"));
	c.head = 32;
	c.layers = 0;
	ck_assert_int_eq(kvt_fragments_create(rig.k, &c, &none, why), KVT_EINVAL);
	ck_assert_ptr_null(none);
	kvt_fragments_destroy(NULL);
	kvt_fragments_destroy(f);
	paged_finish(&p);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("fragments");

	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_loop_test(tcase, a_fragment_is_what_it_would_be_at_its_new_place, 0, 3 * LAYOUTS);
	tcase_add_test(tcase, without_a_move_not_a_bit_changes);
	tcase_add_test(tcase, only_the_same_model_tenant_adapter_and_tokens_find_it);
	tcase_add_test(tcase, exact_chunks_and_fragments_never_meet);
	tcase_add_test(tcase, what_was_blended_is_stored_nowhere);
	tcase_add_test(tcase, a_fragment_has_no_names_of_an_engine);
	tcase_add_test(tcase, the_configuration_says_how_to_cut);
	tcase_add_loop_test(tcase, a_header_that_is_wrong_is_refused_and_erased, 0, 9);
	tcase_add_test(tcase, a_fragment_comes_from_below_or_is_a_miss);
	tcase_add_test(tcase, no_mistake_is_taken);
	return run_tcase("fragments", tcase);
}
