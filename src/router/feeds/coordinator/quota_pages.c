/*
 * quota_pages.c - see pages.h: quotas, and pins.
 */
#include <stdlib.h>
#include <string.h>

#include "feeds/coordinator/pages.h"

#define GIB 1073741824.0

static int compare_salts(const void *a, const void *b)
{
	const struct kvw_cd_salt *left = *(const struct kvw_cd_salt *const *)a;
	const struct kvw_cd_salt *right = *(const struct kvw_cd_salt *const *)b;
	size_t len = left->len < right->len ? left->len : right->len;
	int order = memcmp(left->text, right->text, len);

	return order != 0 ? order : (left->len > right->len) - (left->len < right->len);
}

/* Quotas are of L2 alone. */
static void put_status(struct kvw_page *page, struct kvw_slice text, const struct kvw_cd_salt *salt,
	enum kvw_ce_tier tier)
{
	bool limited = salt != NULL && salt->limited && tier == KVW_CE_L2;

	kvw_cd_put(page,
		"{'cache_salt':%S,'quota_limit_gb':%f,'quota_exists':%b,'usage_gb':%f}", text,
		limited ? (double)salt->limit / GIB : 0.0, limited,
		salt == NULL ? 0.0 : (double)salt->bytes[tier] / GIB);
}

void kvw_cd_page_quota(struct kvw_page *page, const struct kvw_cd *cd, struct kvw_slice salt,
	enum kvw_ce_tier tier)
{
	put_status(page, salt, kvw_cd_find_salt(cd, salt), tier);
}

void kvw_cd_page_quotas(struct kvw_page *page, const struct kvw_cd *cd, enum kvw_ce_tier tier)
{
	const struct kvw_cd_salt *at,
		**sorted = calloc(cd->salts.count + 1, sizeof(struct kvw_cd_salt *));
	size_t count = 0;

	if (sorted == NULL) {
		page->failed = true;
		return;
	}
	TAILQ_FOREACH(at, &cd->salts.list, entry)
	if (at->bytes[tier] > 0 || (at->limited && tier == KVW_CE_L2))
		sorted[count++] = at;
	qsort(sorted, count, sizeof(sorted[0]), compare_salts);
	kvw_cd_put(page, "{'total_gb':%f,'by_cache_salt':[", (double)cd->tier_bytes[tier] / GIB);
	for (size_t i = 0; i < count; i++) {
		kvw_page_string(page, i == 0 ? "" : ",");
		put_status(
			page, (struct kvw_slice){sorted[i]->text, sorted[i]->len}, sorted[i], tier);
	}
	kvw_page_string(page, "]}");
	free(sorted);
}

void kvw_cd_page_pins(
	struct kvw_page *page, const struct kvw_cd *cd, const struct kvw_cd_pin_filter *filter)
{
	const struct kvw_cd_pin *pin;
	struct kvw_page rows = {0};
	uint64_t total = 0, written = 0;

	TAILQ_FOREACH(pin, &cd->pins.list, entry)
	{
		struct kvw_ce_key key = kvw_cd_pin_key(pin);

		if ((filter->salt.len > 0 && !kvw_slice_equal(filter->salt, key.salt)) ||
			(filter->model.len > 0 && !kvw_slice_equal(filter->model, key.model)) ||
			total++ < filter->offset || written == filter->limit)
			continue;
		kvw_page_string(&rows, written++ == 0 ? "{\"key\":" : ",{\"key\":");
		kvw_cd_page_key(&rows, &key);
		kvw_cd_put(&rows, ",'pin_count':%u}", pin->count);
	}
	kvw_cd_put(page, "{'total':%u,'pins':[", total);
	kvw_page_put(page, rows.data == NULL ? "" : rows.data, rows.len);
	page->failed |= rows.failed;
	free(rows.data);
	kvw_page_string(page, "]}");
}
