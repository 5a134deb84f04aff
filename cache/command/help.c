/*
 * help.c - the texts of --help, one per verb; together they are the program's manual.
 */
#include "command/help.h"

/* Lines stay as they are read. */
/* clang-format off */

const char kvt_help_program[] = "\n`kvtier VERB --help` explains a verb. Results go to standard "
				"output, messages to standard\n"
				"error. Exit status: 0 all is well; 1 damage or mistakes were "
				"found; 2 the command line is\n"
				"wrong; 3 the command failed.\n";

const char kvt_help_stat[] =
	"usage: kvtier stat [--json] [--all] FOLDER\n\n"
	"Shows what a store holds: its owner, format, files and log, how many chunks of how many\n"
	"tokens, how much of the disk they take, and the share of each tenant. FOLDER is the store's\n"
	"own folder (PATH/FINGERPRINT/RANK), or the folder of nvme.path to show all stores in it.\n"
	"Reads the log, not the chunks; writes nothing and takes no lock, so it can run while a cache\n"
	"uses the store. The figures are those of the moment when it read the log. A cache that uses it is\n"
	"asked what its tenants have in its memory (128 of them; by its owner's user or root). What they\n"
	"have in a shared tier (Redis, kvtierd) cannot be counted: others store there, too, and no server\n"
	"keeps such sums; for kvtierd's own store the tenants are its buckets.\n\n"
	"  --all     show every tenant, not only the ten largest\n"
	"  --json    print a list of JSON objects\n\n"
	"A tenant is named by the first bytes of its hash (of the cache salt). Metrics have the same by\n"
	"tenant (kvtier_tenant_used_bytes) where protect.tenant_metrics says so. How a running cache\n"
	"does its I/O, and why, is in its own statistics and metrics.\n";

const char kvt_help_verify[] =
	"usage: kvtier verify [OPTION...] FOLDER\n\n"
	"Reads every chunk of a store, or of all stores under FOLDER, and checks its header and its\n"
	"bytes against the checksums from when it was stored; of a chunk that has one for each 256 KiB\n"
	"it says which of these pieces are wrong. An encrypted chunk is checked in full with --keys,\n"
	"else its header only. Repairs nothing: a cache that meets a damaged chunk drops\n"
	"it and treats it as a miss. Can run while a cache uses the store; chunks that the cache\n"
	"removes meanwhile do not count as damage.\n\n"
	"  --keys FILE   the file of master keys (protect.keys)\n"
	"  --rate SIZE   read at most this much per second, to leave the disk to others\n"
	"  --quiet       show no progress on standard error\n"
	"  --json        print a list of JSON objects\n\n"
	"Exit status 1: something is damaged.\n";

const char kvt_help_erase[] =
	"usage: kvtier erase [--tenant NAME] [--model FINGERPRINT] [--key KEY] [OPTION...] [FOLDER]\n\n"
	"Erases chunks for which all that is given holds, in every tier, and prints how many chunks and\n"
	"bytes each tier had. FOLDER as for `kvtier stat`. Where a cache uses the store, that cache erases\n"
	"them: in its memory (a chunk that is being read is freed when its last reader is done), on disk\n"
	"and in its shared tier. A store without a running owner is opened here.\n\n"
	"  --tenant NAME       the cache salt; for kvtierd's own store, the bucket\n"
	"  --tenant-hash HASH  the same by its hash, 32 hex digits of `kvtier stat --json`\n"
	"  --model FINGERPRINT 8 to 64 hex digits as `kvtier stat` prints them; stores do not know the\n"
	"                      names of models\n"
	"  --key KEY           one chunk's storage key, 64 hex digits; where a model mixes windows and full\n"
	"                      attention the chunk's second object, too, which counts as a chunk\n"
	"  --config FILE       the cache's configuration: its nvme.path where there is no FOLDER, and its\n"
	"                      shared tier (l2.url) and keys where no cache runs\n"
	"  --dry-run           count, erase nothing\n"
	"  --yes               do not ask; it asks only on a terminal\n"
	"  --json              print a list of JSON objects\n\n"
	"When it says `erased`, neither a restart nor a crash brings chunks back. In Redis and\n"
	"kvtierd a tenant or model is erased by an epoch: unreadable at once for the process that erases,\n"
	"and not counted. Others that run and use the same shared tier look within l2.seen_time (10 s at\n"
	"most), and erase it in their memory and on their own disks, too. By --key their memory is not\n"
	"reached, nor stores without a running owner: run it for each. A chunk whose tenant no tier knows is not\n"
	"erased by --key and --tenant together. Bytes of an encrypted store are destroyed with the\n"
	"tenant's key only by an owner or a --config that has protect.keys.\n\n"
	"Exit status 3: not all was done, or it is not known to outlive a crash; run it again.\n";

const char kvt_help_size[] =
	"usage: kvtier size [OPTION...] CONFIG.JSON\n\n"
	"Reads a model's config.json (or the folder that contains it) and prints how many bytes of KV\n"
	"cache one token needs, how many tokens the tiers of this machine would hold, and how fast a\n"
	"tier must be to save time: B* = KV bytes per token x prefill tokens per second. Results are\n"
	"printed together with the calculation.\n\n"
	"  --prefill RATE          prefill speed of the engine in tokens per second\n"
	"  --flops F --parameters N [--utilisation U]\n"
	"                          or an estimate of it: U x F / (2 x N), where N is the number of\n"
	"                          parameters used per token (the active ones of a mixture of\n"
	"                          experts); U is 0.4 by default\n"
	"  --l1-rate R             bytes per second from CPU memory to the accelerator; default: the\n"
	"                          measured speed of a memory copy by one thread\n"
	"  --nvme-rate R           bytes per second of the disk\n"
	"  --path FOLDER           folder of the NVMe tier\n"
	"  --dtype TYPE            of keys and values: bf16, fp16, fp32 or fp8; default: the file's\n"
	"  --tensor-parallel N     sizes are for each of N ranks that share the heads\n"
	"  --chunk TOKENS          tokens per chunk; default 256\n"
	"  --context TOKENS        tokens of a context; default: the model's longest\n"
	"  --json                  print one JSON object\n\n"
	"With --gpu it also prints how many tokens fit the GPUs, from which context length on CPU memory and\n"
	"disk are of use, and what fetching such a context takes next to computing it:\n\n"
	"  --gpu \"N x GPU\"         such as \"8 x A100 80GB\", 4xH200 or what nvidia-smi calls it; \"8 x 96GB\"\n"
	"                          for one without a name; `--gpu list` prints those that have one, with\n"
	"                          memory, bandwidth, copies from CPU memory and flop/s\n"
	"  --model CONFIG.JSON     the same as the operand\n"
	"  --tensor-parallel N     GPUs of one copy; default: the fewest that hold one whole context\n"
	"  --weights SIZE          of one copy; default: its *.safetensors, else estimated by its shapes\n"
	"  --ram SIZE, --disk SIZE of the machine; default: this one's memory, the disk of --path\n"
	"  --gpu-share S           of a GPU's memory that is for weights and KV, and of the machine's memory\n"
	"                          and disk that is for KV; default 0.9\n"
	"  --flops, --l1-rate      of a GPU without a name: all GPUs of a copy together, and one from CPU memory\n"
	"  --nvme-rate R           of the disk, for all of them\n\n"
	"A context is all that is to be found again: one prompt, or those of many users together. Where the\n"
	"GPUs hold it, nothing need be offloaded; beyond that, CPU memory is of use, and beyond what CPU\n"
	"memory holds, the disk. SIZEs are 80GB (thousands) or 80GiB.\n\n"
	"  kvtier size --gpu \"8 x A100 80GB\" --ram 1.1TB --disk 8TB --nvme-rate 6G --model config.json\n\n"
	"Numbers may end in k, M, G, T or P (thousands): --flops 989T --parameters 8G\n\n"
	"  kvtier size --prefill 12000 --nvme-rate 6G ~/models/Qwen2.5-7B-Instruct\n";

const char kvt_help_check[] =
	"usage: kvtier check [--lmcache] [--ranks N] [FILE]\n\n"
	"Reads a configuration and prints every mistake with its line and column, and everything that\n"
	"cannot work on this machine: more memory than there is, a folder that cannot be written, a\n"
	"key file that would be refused. Then prints every key with the value that would be used, and\n"
	"how large the tiers would be. Opens no cache and changes nothing. `-` reads standard input.\n\n"
	"FILE may be LMCache's (lmcache_config.yaml), recognised by its keys; LMCACHE_* variables\n"
	"override it. Without FILE it reads the variables, LMCACHE_CONFIG_FILE among them. For each\n"
	"LMCache key that is set it prints whether the key is honoured, mapped, ignored or refused, and\n"
	"what it becomes.\n\n"
	"  --lmcache   read FILE as LMCache's, whatever its keys are\n"
	"  --ranks N   number of ranks on this node (default: node.ranks); sizes are those of one rank, and\n"
	"              what all of them take together is printed, too. Automatic sizes are divided by it, and\n"
	"              by the stores and caches that are in use here now\n\n"
	"Exit status 1: there are mistakes; a cache would ignore them and use the rest.\n";

const char kvt_help_bench[] =
	"usage: kvtier bench [OPTION...]\n\n"
	"Measures memory and disk of this machine with one thread, in a few seconds: opens a cache of\n"
	"its own, puts chunks into it, gets them back and removes it. A plain memory copy is measured\n"
	"too, for comparison. Other programs that run meanwhile make the figures worse.\n\n"
	"  --path FOLDER    measure a disk too, in a new folder there that is removed afterwards\n"
	"  --chunk SIZE     size of a chunk, default 4MiB; `kvtier size` prints a model's\n"
	"  --l1 SIZE        memory for chunks, default 512MiB; at least 128MiB\n"
	"  --disk SIZE      how much to write to disk and read back, default 512MiB\n"
	"  --keys FILE      encrypt chunks, with a file of master keys (protect.keys)\n"
	"  --keep           keep the store on disk and print its path\n"
	"  --fragments      measure fragments too: text that is no prefix, its keys turned\n"
	"  --seconds S      time per memory measurement, default 0.5\n"
	"  --json           print one JSON object\n\n"
	"The time of a write ends when the data is durable. Reads come from the disk, not from memory,\n"
	"and every byte is checked.\n";

const char kvt_help_reference[] =
	"usage: kvtier reference [--example | --lmcache]\n\n"
	"Prints every key of the configuration as Markdown: what it does, its default and its range.\n\n"
	"  --example   print a YAML file instead, with every key at its default\n"
	"  --lmcache   print every key of LMCache's configuration instead, and what it becomes here\n";
