"""Modules that are recorded for the tests: functions as dpx.record takes them.  Small, so that their files are; of real architectures."""
import math

import torch
import torch.nn.functional as F
from torch import nn


def ids(b, s):
    return torch.zeros((b, s), dtype=torch.long)


# ---- nanoGPT, as one writes one ----

class Block(nn.Module):
    def __init__(self, d, h, drop):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.c_fc, self.c_out = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
        self.h, self.p, self.drop = h, drop, nn.Dropout(drop)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (y.view(b, t, self.h, c // self.h).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p, is_causal=True).transpose(1, 2).contiguous().view(b, t, c)
        x = x + self.drop(self.c_proj(y))
        return x + self.drop(self.c_out(F.gelu(self.c_fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, vocab, context, layers, d, h, drop):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(vocab, d), nn.Embedding(context, d), nn.Dropout(drop)
        self.h = nn.ModuleList(Block(d, h, drop) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(d, bias=False), nn.Linear(d, vocab, bias=False)
        self.wte.weight = self.head.weight

    def forward(self, idx, targets):
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device)))
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def nanogpt():
    return GPT(8192, 1024, 6, 256, 8, 0.1), lambda b, s: (ids(b, s), ids(b, s))


operators = nanogpt         # recomputed by operator


def gpt():
    return GPT(8192, 1024, 4, 256, 8, 0.0), lambda b, s: (ids(b, s), ids(b, s))


class Part(nn.Module):
    """A pipeline's stage of a GPT: some of its blocks, and what is before the first or behind the last."""
    def __init__(self, whole, blocks, first, last):
        super().__init__()
        self.wte, self.wpe = (whole.wte, whole.wpe) if first else (None, None)
        self.h = nn.ModuleList(whole.h[i] for i in blocks)
        self.ln_f, self.head = (whole.ln_f, whole.head) if last else (None, None)

    def forward(self, x):
        if self.wte is not None:
            x = self.wte(x) + self.wpe(torch.arange(x.size(1), device=x.device))
        for block in self.h:
            x = block(x)
        return x if self.head is None else self.head(self.ln_f(x))


class Chain(GPT):
    """Which a pipeline may cut: its table is not its head's."""
    def __init__(self, *shape):
        super().__init__(*shape)
        self.wte.weight = nn.Parameter(torch.empty_like(self.head.weight))


def chain():
    return Chain(1024, 256, 5, 64, 4, 0.0), lambda b, s: (ids(b, s), ids(b, s))


class Spare(GPT):
    """With parts that no loss reaches, in blocks and outside: their tensors train, and get no gradient."""
    def __init__(self, *shape):
        super().__init__(*shape)
        d = self.wte.weight.shape[1]
        for block in self.h:
            block.adapter = nn.Linear(d, 3 * d)
        self.pooler = nn.Linear(d, 2 * d)


def spare():
    return Spare(8192, 1024, 4, 256, 8, 0.0), lambda b, s: (ids(b, s), ids(b, s))


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class Classifier(nn.Module):
    """Of bags of words."""
    def __init__(self, vocab=8192, d=256, layers=4, kinds=10):
        super().__init__()
        self.words, self.layers, self.kinds = nn.Embedding(vocab, d), nn.ModuleList(Layer(d) for _ in range(layers)), nn.Linear(d, kinds)

    def forward(self, x, y):
        x = self.words(x).mean(1)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.kinds(x), y)


def classifier():
    return Classifier(), lambda b, s: (ids(b, s), torch.zeros((b,), dtype=torch.long))


def frozen():
    """The first layers do not train: two have no backward, and the third is given nothing that wants a gradient."""
    model = Classifier(1024, 64, 6)
    for part in (model.words, model.layers[0], model.layers[1]):
        part.requires_grad_(False)
    return model, lambda b, s: (ids(b, s), torch.zeros((b,), dtype=torch.long))


class Reader(nn.Module):
    """Reads a memory twice; the widest part of its backward comes behind."""
    def __init__(self, d, wide):
        super().__init__()
        self.up, self.down, self.keys, self.values = nn.Linear(d, wide), nn.Linear(wide, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        x = x + self.down(F.relu(self.up(x)))
        return x + torch.sigmoid(self.keys(memory)) * self.values(memory)


class Readers(nn.Module):
    """Of one memory, which the end reads too: its gradients meet within a reader, behind it, and between two of them."""
    def __init__(self, vocab=512, d=64, layers=3, alone=False):
        super().__init__()
        self.words, self.alone = nn.Embedding(vocab, d), alone
        self.layers, self.kinds = nn.ModuleList(Reader(d, 16 * d) for _ in range(layers)), nn.Linear(d, 10)

    def forward(self, x, y):
        x = memory = F.relu(self.words(x))
        for layer in self.layers:
            x = layer(x) if self.alone else layer(x, memory)
        return F.cross_entropy(self.kinds((x + memory).mean(1)), y)


def readers():
    return Readers(), lambda b, s: (ids(b, s), torch.zeros((b,), dtype=torch.long))


def pyramid():
    """What the first layer is given comes back at the end, as a backbone's features do."""
    return Readers(layers=1, alone=True), lambda b, s: (ids(b, s), torch.zeros((b,), dtype=torch.long))


class Table(Layer):
    """With a buffer of each dtype, not side by side; one is not saved, one has a single number."""
    def __init__(self, d):
        super().__init__(d)
        for name, dtype, shape in (("mask", torch.bool, (d,)), ("scale", torch.float32, (3, d)), ("seen", torch.int64, ()), ("wave", torch.complex64, (d, 5)),
                                   ("codes", torch.uint8, (7,)), ("small", torch.int8, (9,)), ("brain", torch.bfloat16, (2, d)),
                                   ("places", torch.int32, (11,)), ("exact", torch.float64, (13,))):
            self.register_buffer(name, torch.ones(shape, dtype=dtype), persistent=name != "brain")


class Tables(Classifier):
    def __init__(self):
        super().__init__(1024, 64, 2)
        self.layers = nn.ModuleList(Table(64) for _ in range(2))


def tables():
    return Tables(), lambda b, s: (ids(b, s), torch.zeros((b,), dtype=torch.long))


# ---- transformers ----

def auto(cls, model_type, attention="sdpa", **shape):
    import transformers
    config = transformers.AutoConfig.for_model(model_type, **shape)
    config.use_cache = False
    config.architectures = config.architectures or []          # where a task has several classes, the first
    return getattr(transformers, cls).from_config(config, attn_implementation=attention)


def gpt2():
    """The built-in family's, too (tests/model/test_recorded.c)."""
    return auto("AutoModelForCausalLM", "gpt2", n_layer=3, n_embd=256, n_head=4, n_inner=2048, n_positions=1024, vocab_size=8192, attn_pdrop=0.0, embd_pdrop=0.0,
                resid_pdrop=0.0, tie_word_embeddings=False)


def bert():
    return auto("AutoModelForMaskedLM", "bert", hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, vocab_size=8192,
                max_position_embeddings=1024)


def vit():
    model = auto("AutoModelForImageClassification", "vit", hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768)
    return model, lambda b, s: {"pixel_values": torch.zeros((b, 3, 224, 224)), "labels": torch.zeros((b,), dtype=torch.long)}


def t5():
    model = auto("AutoModelForSeq2SeqLM", "t5", attention="eager", d_model=256, d_ff=1024, num_layers=4, num_heads=4, vocab_size=8192, decoder_start_token_id=0)
    return model, lambda b, s: {"input_ids": ids(b, s), "labels": ids(b, s // 4)}


def llama():
    return auto("AutoModelForCausalLM", "llama", hidden_size=256, intermediate_size=704, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=2,
                vocab_size=8192, max_position_embeddings=2048, tie_word_embeddings=False)


# ---- an encoder and a decoder ----

class Translator(nn.Module):
    """Its blocks have different tensors: a decoder's attend twice."""
    def __init__(self, vocab=4096, d=128, h=4, layers=2):
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, d), nn.Embedding(vocab, d)
        self.transformer = nn.Transformer(d, h, layers, layers, 4 * d, dropout=0.0, batch_first=True)
        self.out = nn.Linear(d, vocab)

    def forward(self, x, y):
        mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1], device=y.device, dtype=self.out.weight.dtype)
        return self.out(self.transformer(self.source(x), self.target(y), tgt_mask=mask, tgt_is_causal=True))


def translator():
    return Translator(), lambda b, s: (ids(b, s), ids(b, s)), lambda m, x: F.cross_entropy(m(*x).flatten(0, 1), x[1].flatten())


class Pair(nn.Module):
    """Both sides and the loss share one table, and both share positions: the root's gradients come in the backward of a unit."""
    def __init__(self, vocab=2000, d=64, layers=2):
        super().__init__()
        self.shared, self.pos = nn.Embedding(vocab, d, padding_idx=0), nn.Embedding(512, d)
        layer = dict(nhead=4, dim_feedforward=4 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(d, **layer) for _ in range(layers))
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(d, **layer) for _ in range(layers))
        self.out = nn.Linear(d, vocab)
        self.out.weight = self.shared.weight

    def forward(self, source, target):
        at = lambda x: self.shared(x) + self.pos(torch.arange(x.shape[1], device=x.device))
        memory = at(source)
        for layer in self.encoder:
            memory = layer(memory)
        y = at(target)
        for layer in self.decoder:
            y = layer(y, memory)
        return F.cross_entropy(self.out(y).transpose(1, 2), target, ignore_index=0)


def pair():
    return Pair(), lambda b, s: (ids(b, s), ids(b, s // 2))


# ---- a diffusion transformer ----

class DiTBlock(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6), nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))
        self.h = h

    def attn(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.h, c // self.h).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))

    def forward(self, x, c):
        s1, k1, g1, s2, k2, g2 = self.ada(c).chunk(6, dim=1)
        x = x + g1.unsqueeze(1) * self.attn(self.norm1(x) * (1 + k1.unsqueeze(1)) + s1.unsqueeze(1))
        return x + g2.unsqueeze(1) * self.mlp(self.norm2(x) * (1 + k2.unsqueeze(1)) + s2.unsqueeze(1))


class DiT(nn.Module):
    def __init__(self, d=256, h=4, layers=6, patch=2, channels=4):
        super().__init__()
        self.x_embed = nn.Conv2d(channels, d, patch, stride=patch)
        self.t_embed = nn.Sequential(nn.Linear(256, d), nn.SiLU(), nn.Linear(d, d))
        self.y_embed = nn.Embedding(1001, d)
        self.blocks = nn.ModuleList(DiTBlock(d, h) for _ in range(layers))
        self.norm, self.ada, self.out = nn.LayerNorm(d, elementwise_affine=False), nn.Sequential(nn.SiLU(), nn.Linear(d, 2 * d)), nn.Linear(d, patch * patch * channels)
        self.p, self.ch = patch, channels

    def forward(self, x, t, y):
        b, _, height, width = x.shape
        h = self.x_embed(x).flatten(2).transpose(1, 2)
        a = t[:, None] * torch.exp(-math.log(10000) * torch.arange(0, 128, device=x.device) / 128)
        c = self.t_embed(torch.cat([a.cos(), a.sin()], -1).to(x.dtype)) + self.y_embed(y)      # the angles are fp32, whatever t is
        for block in self.blocks:
            h = block(h, c)
        s, k = self.ada(c).chunk(2, 1)
        h = self.out(self.norm(h) * (1 + k.unsqueeze(1)) + s.unsqueeze(1))
        h = h.reshape(b, height // self.p, width // self.p, self.p, self.p, self.ch)
        return torch.einsum("nhwpqc->nchpwq", h).reshape(b, self.ch, height, width)


def dit():
    return (DiT(), lambda b, s: (torch.zeros((b, 4, s, s)), torch.zeros((b,)), torch.zeros((b,), dtype=torch.long), torch.zeros((b, 4, s, s))),
            lambda model, x: F.mse_loss(model(*x[:3]), x[3]))


# ---- convolutions ----

def images(b, s):
    return torch.zeros((b, 3, s, s)), torch.zeros((b,), dtype=torch.long)


def classify(model, x):
    y = model(x[0])
    return F.cross_entropy(getattr(y, "logits", y), x[1])


def resnet():
    import torchvision
    return torchvision.models.resnet18(weights=None, num_classes=100), images, classify


def unet():
    from diffusers import UNet2DConditionModel
    model = UNet2DConditionModel(sample_size=32, block_out_channels=(32, 64, 128), cross_attention_dim=64, attention_head_dim=4, layers_per_block=1,
                                 down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                                 up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"))
    return (model, lambda b, s: (torch.zeros((b, 4, s, s)), torch.zeros((b,), dtype=torch.long), torch.zeros((b, 77, 64)), torch.zeros((b, 4, s, s))),
            lambda m, x: F.mse_loss(m(x[0], x[1], encoder_hidden_states=x[2]).sample, x[3]))


# name: how it is recorded, and the points (batch, size) at which PyTorch's trackers saw it
CASES = {
    "nanogpt": ("--stage3", [(7, 640), (3, 1000)]),
    "operators": ("--size 640 --batch 7 --check 7:640 --recompute op", [(7, 640)]),
    "gpt": ("--stage3 --precision bf16 --recompute none", []),
    "classifier": ("--stage3 --precision bf16 --recompute none", []),
    "frozen": ("", [(512, 64)]),
    "readers": ("", [(64, 64)]),
    "pyramid": ("", [(64, 64)]),
    "gpt2": ("--precision bf16,fp32 --batch 2 --size 512 --check 2:512", []),
    "pair": ("--size 64,128,192 --step 2", [(8, 128)]),
    "tables": ("--recompute none", []),
    "chain": ("--precision bf16,fp32 --size 32,64,96", []),
    "spare": ("", [(4, 512)]),
    "bert": ("--stage3 --checkpoint BertLayer", [(8, 512)]),
    "llama": ("--stage3 --checkpoint LlamaDecoderLayer", [(4, 1024)]),
    "vit": ("--size 224 --checkpoint ViTLayer", [(64, 224)]),
    "dit": ("--size 16,32,48,64,80 --step 16", [(32, 32), (8, 96)]),
    "t5": ("--step 4", [(16, 512)]),
    "translator": ("", [(8, 256)]),
    "resnet": ("--size 64,96,128", [(32, 224)]),
    "unet": ("--size 64,128,192,256,320", [(4, 128)]),
}
OPTIONS = {name: ("" if "--precision" in options else "--precision bf16,autocast ") + options for name, (options, _) in CASES.items()}
