/* policy.c - the list of policies. */
#include <string.h>

#include "policies/policies.h"

#define KVT_DEFAULT_POLICY(name)

static const struct kvt_policy_ops *const policies[] = {
#define KVT_POLICY(name) &kvt_policy_##name,
#include "policies/policies.def"
#undef KVT_POLICY
};

static const char *const names[] = {
#define KVT_POLICY(name) #name,
#include "policies/policies.def"
#undef KVT_POLICY
	NULL,
};

#undef KVT_DEFAULT_POLICY
#define KVT_POLICY(name)
#define KVT_DEFAULT_POLICY(name)                                                                   \
	static const struct kvt_policy_ops *const usual = &kvt_policy_##name;
#include "policies/policies.def"
#undef KVT_POLICY
#undef KVT_DEFAULT_POLICY

const struct kvt_policy_ops *kvt_policy_named(const char *name)
{
	if (strcmp(name, "default") == 0)
		return usual;
	for (size_t i = 0; names[i] != NULL; i++)
		if (strcmp(names[i], name) == 0)
			return policies[i];
	return NULL;
}

const char *const *kvt_policy_names(void)
{
	return names;
}
