"""Modules that are no built-in family, small ones of real architectures: functions for dpx.record, and how each is recorded.

    OPTIONS     of each: its sizes, and what else dpx.record is told

Weights are never loaded: configs alone."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "module"))
from modules import GPT, DiT, auto, classify, ids, images, pyramid

SMALL = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=1024)
TEXT, FIXED, SIDE = "--size 64,128,192", "--size 224", "--size 64,128,192,256,320"
labels = lambda b: torch.zeros((b,), dtype=torch.long)
pixels = lambda b, s: {"pixel_values": torch.zeros((b, 3, s, s)), "labels": labels(b)}
text = lambda b, s: {"input_ids": ids(b, s), "labels": ids(b, s)}


# ---- transformers: text ----

def masked(model_type, **shape):
    return auto("AutoModelForMaskedLM", model_type, **dict(SMALL, max_position_embeddings=512, **shape)), text


def bert():
    return masked("bert")


def roberta():
    return auto("AutoModelForMaskedLM", "roberta", **dict(SMALL, max_position_embeddings=514)), text


def deberta():
    return auto("AutoModelForMaskedLM", "deberta-v2", attention="eager", **dict(SMALL, max_position_embeddings=512, relative_attention=True)), text


def electra():
    return masked("electra", embedding_size=64)


def albert():
    return masked("albert", embedding_size=64)


def distilbert():
    return auto("AutoModelForMaskedLM", "distilbert", dim=128, n_layers=2, n_heads=4, hidden_dim=256, vocab_size=1024), text


def longformer():
    return auto("AutoModelForMaskedLM", "longformer", attention="eager", **dict(SMALL, attention_window=32, max_position_embeddings=514)), text


def esm():
    return auto("AutoModelForMaskedLM", "esm", **dict(SMALL, vocab_size=33, position_embedding_type="rotary", mask_token_id=32, pad_token_id=1)), text


def modernbert():
    return auto("AutoModelForMaskedLM", "modernbert", **dict(SMALL, pad_token_id=0)), text


def t5():
    return auto("AutoModelForSeq2SeqLM", "t5", attention="eager", d_model=128, d_ff=256, num_layers=2, num_heads=4, vocab_size=1024, decoder_start_token_id=0), text


def bart():
    return auto("AutoModelForSeq2SeqLM", "bart", d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=1024, max_position_embeddings=512), text


def causal(model_type, attention="sdpa", **shape):
    return auto("AutoModelForCausalLM", model_type, attention, **shape), text


def mamba():
    return causal("mamba", "eager", hidden_size=128, num_hidden_layers=2, vocab_size=1024, state_size=8)


def mamba2():
    return causal("mamba2", "eager", hidden_size=128, num_hidden_layers=2, vocab_size=1024, num_heads=8, head_dim=32, state_size=16, n_groups=1, chunk_size=32)


def rwkv():
    return causal("rwkv", "eager", hidden_size=128, num_hidden_layers=2, vocab_size=1024, context_length=512)


def jamba():
    return causal("jamba", **dict(SMALL, num_key_value_heads=2, use_mamba_kernels=False, num_experts=2, attn_layer_period=2, attn_layer_offset=1))


def switch():
    return auto("AutoModelForSeq2SeqLM", "switch_transformers", attention="eager", d_model=128, d_ff=256, num_layers=2, num_heads=4, vocab_size=1024, num_experts=4,
                decoder_start_token_id=0), text


def gptj():
    return causal("gptj", "eager", n_embd=128, n_layer=2, n_head=4, rotary_dim=16, n_positions=512, vocab_size=1024)


def biogpt():
    return causal("biogpt", **dict(SMALL, max_position_embeddings=512))


# ---- transformers: pictures, sound, both ----

def image_classifier(model_type, **shape):
    return auto("AutoModelForImageClassification", model_type, **shape), pixels


def vit():
    return image_classifier("vit", hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)


def deit():
    return image_classifier("deit", hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)


def dinov2():
    return image_classifier("dinov2", hidden_size=128, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2)


def swin():
    return image_classifier("swin", embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=7)


def segformer():
    return auto("AutoModelForImageClassification", "segformer", attention="eager", hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 1, 1]), pixels


def whisper():
    model = auto("AutoModelForSpeechSeq2Seq", "whisper", d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                 encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=1024, max_source_positions=200, decoder_start_token_id=1, pad_token_id=0)
    return model, lambda b, s: {"input_features": torch.zeros((b, 80, 400)), "labels": ids(b, s)}


def wav2vec2():
    model = auto("AutoModelForCTC", "wav2vec2", hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=32,
                 mask_time_prob=0.0, layerdrop=0.0)
    return model, lambda b, s: {"input_values": torch.zeros((b, s)), "labels": ids(b, 16) + 1}


def clip():
    from transformers import CLIPConfig, CLIPModel
    shape = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, projection_dim=64)
    model = CLIPModel(CLIPConfig(text_config=dict(shape, vocab_size=1024), vision_config=dict(shape, patch_size=32), projection_dim=64))
    return model, lambda b, s: {"input_ids": ids(b, 77), "pixel_values": torch.zeros((b, 3, 224, 224)), "return_loss": True}


def siglip():
    from transformers import SiglipConfig, SiglipModel
    shape = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
    model = SiglipModel(SiglipConfig(text_config=dict(shape, vocab_size=1024), vision_config=dict(shape, patch_size=32)))
    return model, lambda b, s: {"input_ids": ids(b, 64), "pixel_values": torch.zeros((b, 3, 224, 224)), "return_loss": True}


VISION = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)


def llava():
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
    model = LlavaForConditionalGeneration(LlavaConfig(vision_config=CLIPVisionConfig(**VISION, image_size=56, patch_size=14),
                                                      text_config=LlamaConfig(**SMALL), image_token_index=1000))
    return model, lambda b, s: {"input_ids": with_image(b, s, 16, 1000), "pixel_values": torch.zeros((b, 3, 56, 56)), "labels": ids(b, s)}


def with_image(b, s, tokens, token):
    """Texts that begin with so many tokens of an image."""
    text = ids(b, s)
    text[:, 1:1 + tokens] = token
    return text


def seen(b, s):
    """What the models of Qwen see: an image of 8 by 8 patches, 4 by 4 tokens, in each text; patches have two frames of 14 by 14 (16 by 16)."""
    kinds = (with_image(b, s, 16, 1000) == 1000).int()
    return {"input_ids": with_image(b, s, 16, 1000), "labels": ids(b, s), "image_grid_thw": torch.tensor([[1, 8, 8]] * b), "mm_token_type_ids": kinds}


def without_deltas(model, x):
    """The loss; they keep the places' deltas for generation, which training does not read."""
    loss = model(**x).loss
    model.model.rope_deltas = None
    return loss


QWEN = dict(text_config=dict(SMALL, num_key_value_heads=2, rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}),
            image_token_id=1000, vision_start_token_id=1001, vision_end_token_id=1002, video_token_id=1003)


def qwen2_vl():
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration
    model = Qwen2VLForConditionalGeneration(Qwen2VLConfig(vision_config=dict(depth=2, embed_dim=64, hidden_size=128, num_heads=4), **QWEN))
    return model, lambda b, s: dict(seen(b, s), pixel_values=torch.zeros((64 * b, 3 * 2 * 14 * 14))), without_deltas


def qwen3_vl():
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
    vision = dict(depth=2, hidden_size=64, out_hidden_size=128, num_heads=4, intermediate_size=128, num_position_embeddings=64, deepstack_visual_indexes=[0])
    text = dict(QWEN, text_config=dict(QWEN["text_config"], head_dim=32))
    model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(vision_config=vision, **text))
    return model, lambda b, s: dict(seen(b, s), pixel_values=torch.zeros((64 * b, 3 * 2 * 16 * 16))), without_deltas


def nemotron_h():
    return causal("nemotron_h", "eager", **dict(SMALL, hybrid_override_pattern="M*-M", head_dim=32, num_key_value_heads=2, mamba_num_heads=8, mamba_head_dim=32,
                                                ssm_state_size=16, n_groups=1, chunk_size=32, num_hidden_layers=4))


def zamba2():
    return causal("zamba2", "eager", **dict(SMALL, num_hidden_layers=4, mamba_d_state=16, mamba_headdim=32, n_mamba_heads=8, chunk_size=32, num_mem_blocks=1,
                                            layers_block_type=["mamba", "hybrid"] * 2, num_key_value_heads=4, adapter_rank=8, attention_head_dim=64))


# ---- torchvision, timm ----

def vision(name, **how):
    import torchvision
    return getattr(torchvision.models, name)(weights=None, num_classes=10, **how), images, classify


def resnet50():
    return vision("resnet50")


def convnext():
    return vision("convnext_tiny")


def swin_v2():
    return vision("swin_v2_t")


def vit_b():
    return vision("vit_b_32")


def efficientnet():
    return vision("efficientnet_b0")


def mobilenet():
    return vision("mobilenet_v3_small")


def deeplab():
    import torchvision
    model = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=8)
    return (model, lambda b, s: (torch.zeros((b, 3, s, s)), torch.zeros((b, s, s), dtype=torch.long)), lambda m, x: F.cross_entropy(m(x[0])["out"], x[1]))


def video_resnet():
    import torchvision
    return (torchvision.models.video.r3d_18(weights=None, num_classes=10), lambda b, s: (torch.zeros((b, 3, 8, s, s)), labels(b)), classify)


def timm_of(name, **how):
    import timm
    return timm.create_model(name, pretrained=False, num_classes=10, **how), images, classify


def mixer():
    return timm_of("mixer_s32_224")


def beit():
    return timm_of("beit_base_patch16_224", depth=2)


class Backbone(nn.Module):
    """Faster R-CNN's: a ResNet, whose first layers are frozen, and its feature pyramid.  Its frozen norms are buffers, which FSDP2 leaves in fp32: what they make
    would be fp32, too, which the next convolution refuses."""
    def __init__(self):
        super().__init__()
        from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
        from torchvision.ops import FrozenBatchNorm2d
        self.backbone = resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=3)
        for module in self.backbone.modules():
            if isinstance(module, FrozenBatchNorm2d):
                module.to(torch.bfloat16)

    def forward(self, x):
        return sum(f.float().square().mean() for f in self.backbone(x).values())


def faster_rcnn():
    return Backbone(), lambda b, s: (torch.zeros((b, 3, s, s)),)


# ---- diffusers ----

def noised(model, channels, *more):
    return (model, lambda b, s: (torch.zeros((b, channels, s, s)), labels(b), *(m(b) for m in more), torch.zeros((b, channels, s, s))))


def unet_sd():
    from diffusers import UNet2DConditionModel
    model = UNet2DConditionModel(sample_size=32, block_out_channels=(32, 64, 128), cross_attention_dim=64, attention_head_dim=4, layers_per_block=1,
                                 down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                                 up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"))
    return (*noised(model, 4, lambda b: torch.zeros((b, 77, 64))), lambda m, x: F.mse_loss(m(x[0], x[1], encoder_hidden_states=x[2]).sample, x[3]))


def unet_ddpm():
    from diffusers import UNet2DModel
    model = UNet2DModel(sample_size=32, in_channels=3, out_channels=3, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
                        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    return (*noised(model, 3), lambda m, x: F.mse_loss(m(x[0], x[1]).sample, x[2]))


def dit_diffusers():
    from diffusers import DiTTransformer2DModel
    model = DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=32, in_channels=4, num_layers=2, sample_size=32, patch_size=2, norm_num_groups=8)
    return (*noised(model, 4, labels), lambda m, x: F.mse_loss(m(x[0], timestep=x[1], class_labels=x[2]).sample[:, :4], x[3]))


def sd3():
    from diffusers import SD3Transformer2DModel
    model = SD3Transformer2DModel(sample_size=32, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=32, num_attention_heads=4, joint_attention_dim=64,
                                  caption_projection_dim=128, pooled_projection_dim=64, out_channels=4)
    return (*noised(model, 4, lambda b: torch.zeros((b, 77, 64)), lambda b: torch.zeros((b, 64))),
            lambda m, x: F.mse_loss(m(x[0], encoder_hidden_states=x[2], pooled_projections=x[3], timestep=x[1]).sample, x[4]))


def unet_sdxl():
    from diffusers import UNet2DConditionModel
    model = UNet2DConditionModel(sample_size=32, block_out_channels=(32, 64), cross_attention_dim=64, attention_head_dim=(4, 8), layers_per_block=1,
                                 transformer_layers_per_block=(1, 2), use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=32,
                                 projection_class_embeddings_input_dim=6 * 32 + 64, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                                 up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))
    return (*noised(model, 4, lambda b: torch.zeros((b, 77, 64)), lambda b: torch.zeros((b, 64)), lambda b: torch.zeros((b, 6))),
            lambda m, x: F.mse_loss(m(x[0], x[1], encoder_hidden_states=x[2], added_cond_kwargs={"text_embeds": x[3], "time_ids": x[4]}).sample, x[5]))


def flux():
    from diffusers import FluxTransformer2DModel
    model = FluxTransformer2DModel(in_channels=16, num_layers=2, num_single_layers=2, attention_head_dim=32, num_attention_heads=4, joint_attention_dim=64,
                                   pooled_projection_dim=64, axes_dims_rope=(8, 12, 12), guidance_embeds=False)
    return (model, lambda b, s: (torch.zeros((b, s, 16)), torch.zeros((b, 64, 64)), torch.zeros((b, 64)), torch.zeros((b,)), torch.zeros((b, s, 16))),
            lambda m, x: F.mse_loss(m(hidden_states=x[0], encoder_hidden_states=x[1], pooled_projections=x[2], timestep=x[3], img_ids=torch.zeros(x[0].shape[1], 3),
                                      txt_ids=torch.zeros(64, 3)).sample, x[4]))


def video_dit():
    from diffusers import CogVideoXTransformer3DModel
    model = CogVideoXTransformer3DModel(num_attention_heads=4, attention_head_dim=32, in_channels=4, out_channels=4, time_embed_dim=64, text_embed_dim=64, num_layers=2,
                                        sample_width=32, sample_height=32, sample_frames=9, max_text_seq_length=32)
    return (model, lambda b, s: (torch.zeros((b, 3, 4, s, s)), torch.zeros((b, 32, 64)), labels(b), torch.zeros((b, 3, 4, s, s))),
            lambda m, x: F.mse_loss(m(x[0], encoder_hidden_states=x[1], timestep=x[2]).sample, x[3]))


def vae():
    from diffusers import AutoencoderKL
    model = AutoencoderKL(block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8, down_block_types=("DownEncoderBlock2D",) * 2,
                          up_block_types=("UpDecoderBlock2D",) * 2, sample_size=32)
    return model, images, lambda m, x: F.mse_loss(m(x[0], sample_posterior=False).sample, x[0])


# ---- of one's own ----

def nanogpt():
    return GPT(1024, 512, 2, 128, 4, 0.1), lambda b, s: (ids(b, s), ids(b, s))


def dit():
    return (DiT(d=128, h=4, layers=2), lambda b, s: (torch.zeros((b, 4, s, s)), torch.zeros((b,)), labels(b), torch.zeros((b, 4, s, s))),
            lambda m, x: F.mse_loss(m(*x[:3]), x[3]))


class DLRM(nn.Module):
    def __init__(self, tables=8, rows=1000, d=32):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, d, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, d), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(d + (tables + 1) * tables // 2, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, dense, sparse, offsets):
        x = self.bottom(dense)
        all_ = torch.stack([x] + [t(sparse[i], offsets[i]) for i, t in enumerate(self.tables)], 1)
        z = torch.bmm(all_, all_.transpose(1, 2))
        i, j = torch.tril_indices(z.shape[1], z.shape[1], offset=-1)
        return self.top(torch.cat([x, z[:, i, j]], 1)).squeeze(1)


def dlrm():
    return (DLRM(), lambda b, s: (torch.zeros((b, 13)), torch.zeros((8, b * s), dtype=torch.long), torch.zeros((8, b), dtype=torch.long), torch.zeros((b,))),
            lambda m, x: F.binary_cross_entropy_with_logits(m(*x[:3]), x[3]))


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(1024, 128), nn.LSTM(128, 128, 2, batch_first=True), nn.Linear(128, 1024)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0])


def lstm():
    return LSTM(), lambda b, s: (ids(b, s), ids(b, s)), lambda m, x: F.cross_entropy(m(x[0]).flatten(0, 1), x[1].flatten())


class Graph(nn.Module):
    """Layers of a graph network over dense adjacency."""
    def __init__(self, d=64, layers=3):
        super().__init__()
        self.inward, self.layers, self.out = nn.Linear(16, d), nn.ModuleList(nn.Linear(d, d) for _ in range(layers)), nn.Linear(d, 4)

    def forward(self, x, adjacency):
        x = self.inward(x)
        for layer in self.layers:
            x = F.relu(layer(adjacency @ x)) + x
        return self.out(x)


def graph():
    return (Graph(), lambda b, s: (torch.zeros((b, s, 16)), torch.zeros((b, s, s)), ids(b, s)),
            lambda m, x: F.cross_entropy(m(*x[:2]).flatten(0, 1), x[2].flatten()))


class MLP(nn.Module):
    def __init__(self, d=64, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def mlp():
    return MLP(), lambda b, s: (torch.zeros((b, s, 64)),)


class Meets(nn.Module):
    """The gradient of p + q is one tensor, which waits at both: what comes to p as well must not be added into it."""
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            h = layer(x)
            p, q = torch.tanh(h), torch.sigmoid(h)
            x = (p + q) + (p * 1.5 + torch.relu(q) + q * 2)
        return x.square().mean()


class Experts(nn.Module):
    """Each expert's tokens found by a mask, as Mixtral's reference has it; "counts": their numbers read, as DeepSeek's has it."""
    def __init__(self, d=64, n=4, counts=False):
        super().__init__()
        self.gate, self.counts = nn.Linear(d, n, bias=False), counts
        self.experts = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(n))

    def forward(self, x):
        at = self.gate(x).argmax(-1)
        if self.counts:
            order, out, begin = at.argsort(), [], 0
            for expert, n in zip(self.experts, torch.zeros(len(self.experts), dtype=torch.long, device=x.device).scatter_add(0, at, torch.ones_like(at)).tolist()):
                out.append(expert(x[order[begin:begin + n]]))
                begin += n
            return torch.cat(out)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, = torch.where(at == i)
            out[rows] += expert(x[rows])
        return out


class Routed(nn.Module):
    def __init__(self, counts=False):
        super().__init__()
        self.layers = nn.ModuleList(Experts(counts=counts) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x.flatten(0, 1)).view_as(x)
        return x.float().square().mean()


def routed():
    return Routed(), lambda b, s: (torch.zeros((b, s, 64)),)


def counted():
    return Routed(counts=True), lambda b, s: (torch.zeros((b, s, 64)),)


class NamedExperts(nn.Module):
    """Experts found by their names, as Switch's are: of each that a mask may find."""
    def __init__(self, d=64, n=4):
        super().__init__()
        self.gate, self.experts = nn.Linear(d, n, bias=False), nn.ModuleDict({"expert_%d" % i: nn.Linear(d, d) for i in range(n)})

    def forward(self, x):
        at = F.one_hot(self.gate(x).argmax(-1), len(self.experts))
        out = torch.zeros_like(x)
        for i in (at.sum((0, 1)) > 0).nonzero():
            out = out + self.experts[f"expert_{i[0]}"](x) * at[..., i]
        return out


class Names(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(NamedExperts() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x.float().square().mean()


def named():
    return Names(), lambda b, s: (torch.zeros((b, s, 64)),)


class Alternates(MLP):
    """Its first layer runs in every other step: no step stands for all."""
    steps = 0

    def forward(self, x):
        self.steps += 1
        for layer in self.layers[self.steps % 2:]:
            x = layer(x)
        return x.square().mean()


def alternates():
    return Alternates(), lambda b, s: (torch.zeros((b, s, 64)),)


class Keeps(MLP):
    """A table that the first forward makes, and that stays; a mean that is another tensor in each step."""
    table = None

    def __init__(self, replaces=False):
        super().__init__()
        self.replaces = replaces
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x):
        if self.table is None:
            self.table = torch.zeros(1000, 64, device=x.device)
        if self.replaces:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
        return super().forward(x - self.mean + self.table[:x.shape[1]])


def keeps():
    return Keeps(), lambda b, s: (torch.zeros((b, s, 64)),)


def replaces():
    return Keeps(replaces=True), lambda b, s: (torch.zeros((b, s, 64)),)


class Losses(MLP):
    def forward(self, x):
        return x.sum(), super().forward(x), super().forward(2 * x)


def losses():
    return Losses(), lambda b, s: (torch.zeros((b, s, 64)),)


def halves():
    return MLP().half(), lambda b, s: (torch.zeros((b, s, 64)),)


class Lazy(nn.Module):
    """Its parameters have no shape before the first forward, which DDP and FSDP want to see, too."""
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LazyLinear(128), nn.ReLU(), nn.LazyLinear(64)) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x.square().mean()


def lazy():
    return Lazy(), lambda b, s: (torch.zeros((b, s, 64)),)


def awake():
    module = Lazy()
    module(torch.zeros((1, 1, 64)))
    return module, lambda b, s: (torch.zeros((b, s, 64)),)


class Drops(MLP):
    """Layers run, or not, as chance has it."""
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) if torch.rand(()) > 0.2 else x
        return x.square().mean()


def drops():
    return Drops(), lambda b, s: (torch.zeros((b, s, 64)),)


def attends():
    """Its attention asks for its out_proj's weight: stage 3 gathers that as an external parameter."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), lambda b, s: (torch.zeros((b, s, 64)),), lambda m, x: m(x[0]).square().mean()


def shared():
    return Meets(), lambda b, s: (torch.zeros((b, s, 64)),)


class Takes(nn.Module):
    """A block that is given a table; the second one uses it for nothing that it returns."""
    def __init__(self, uses):
        super().__init__()
        self.lin, self.uses = nn.Linear(64, 64), uses

    def forward(self, x, table):
        seen = F.dropout(table, 0.1)
        return x + self.lin(x + seen if self.uses else x)


class Given(nn.Module):
    def __init__(self, *uses):
        super().__init__()
        self.tables = nn.ParameterList(nn.Parameter(torch.zeros(64)) for _ in uses)
        self.layers = nn.ModuleList(Takes(u) for u in uses)

    def forward(self, x):
        for table, layer in zip(self.tables, self.layers):
            x = layer(x, table)
        return x.square().mean()


def given():
    return Given(True, False), lambda b, s: (torch.zeros((b, s, 64)),)


class Borrows(nn.Module):
    """Its head asks a part of the first layer, behind the last one, as diffusers' DiT does."""
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.layers[0][0](x).square().mean()


def borrows():
    return Borrows(), lambda b, s: (torch.zeros((b, s, 64)),)


OPTIONS = {
    "bert": TEXT, "roberta": TEXT, "deberta": TEXT, "electra": TEXT, "albert": TEXT, "distilbert": TEXT, "longformer": "--size 64,128,192 --step 64", "esm": TEXT,
    "modernbert": "--size 64,128,192", "t5": TEXT, "bart": TEXT, "mamba": "--size 32", "mamba2": "--size 64", "rwkv": "--size 16", "jamba": "--size 32",
    "switch": TEXT, "gptj": TEXT, "biogpt": TEXT, "vit": FIXED, "deit": FIXED, "dinov2": FIXED, "swin": FIXED, "segformer": "--size 64", "whisper": TEXT, "wav2vec2": "--size 16000",
    "clip": FIXED + " --batch 2,3,4", "siglip": FIXED + " --batch 2,3,4", "resnet50": "--size 64,96,128", "convnext": "--size 64,96,128", "swin_v2": FIXED, "vit_b": FIXED, "efficientnet": "--size 64,96,128",
    "mobilenet": "--size 64,96,128", "deeplab": "--size 64", "video_resnet": "--size 32,64,96", "mixer": FIXED, "beit": FIXED, "unet_sd": SIDE,
    "unet_ddpm": SIDE, "dit_diffusers": "--size 32", "sd3": "--size 32", "vae": SIDE, "nanogpt": TEXT, "dit": "--size 16,32,48,64,80 --step 16",
    "llava": TEXT + " --batch 2", "qwen2_vl": TEXT + " --batch 2", "qwen3_vl": TEXT + " --batch 2", "nemotron_h": "--size 64", "zamba2": "--size 64", "faster_rcnn": "--size 64,96,128", "unet_sdxl": SIDE,
    "flux": TEXT, "video_dit": "--size 32",
    "dlrm": "--size 8,16,24", "lstm": "--size 16", "graph": TEXT, "mlp": TEXT, "shared": TEXT, "given": TEXT, "pyramid": TEXT, "borrows": TEXT,
    "named": TEXT, "alternates": TEXT, "keeps": TEXT, "replaces": TEXT, "losses": TEXT, "halves": TEXT, "lazy": TEXT, "awake": TEXT, "drops": TEXT, "attends": TEXT + " --stage3",
    "routed": TEXT + " --found Experts=1/4", "counted": TEXT + " --read Experts=b*s/4",
}

if __name__ == "__main__":
    print(" ".join(OPTIONS))
