"""Writes the ONNX files of this folder and what PyTorch itself does with the same models.

usage: export.py onnx            both exporters of torch.onnx (torch 2.13, transformers 5.24, onnx, onnxscript)
       export.py recorded DEVICE a forward and backward, by tools/python/fsdplan on this device

The files keep what a plan needs: weights of more than one dimension and stack traces are taken out.
"""

import gzip
import pathlib
import sys
import warnings

import torch
import transformers as tf
from torch import nn

HERE = pathlib.Path(__file__).parent
warnings.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(self.act(self.up(self.norm(x)))))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(16, 32)
        self.blocks = nn.ModuleList([Block(32) for _ in range(3)])
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def tokens():
    return {"input_ids": torch.randint(0, 64, (2, 16))}, {"input_ids": {0: "batch", 1: "sequence"}}


def images():
    return {"pixel_values": torch.randn(2, 3, 32, 32)}, {"pixel_values": {0: "batch"}}


def mlp():
    return Mlp(), {"x": torch.randn(2, 16)}, {"x": {0: "batch"}}


def gpt2():
    config = tf.GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    return tf.GPT2LMHeadModel(config), *tokens()


def bert():
    config = tf.BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                           intermediate_size=64, max_position_embeddings=64)
    return tf.BertForSequenceClassification(config), *tokens()


def resnet():
    config = tf.ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[2, 1], layer_type="basic", num_labels=10)
    return tf.ResNetForImageClassification(config), *images()


def vit():
    config = tf.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                          image_size=32, patch_size=8, num_labels=10)
    return tf.ViTForImageClassification(config), *images()


MODELS = {f.__name__: f for f in (mlp, gpt2, bert, resnet, vit)}


def torch_export(model, batch, sizes, path):
    torch.onnx.export(model, kwargs=batch, dynamo=True, optimize=False, verbose=False,
                      dynamic_shapes={name: {d: torch.export.Dim(word) for d, word in dims.items()}
                                      for name, dims in sizes.items()}).save(path)


def torchscript(model, batch, sizes, path):
    torch.onnx.export(model, tuple(batch.values()), path, dynamo=False, input_names=list(batch), dynamic_axes=sizes,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17)


def inference_torchscript(model, batch, sizes, path):
    torch.onnx.export(model.eval(), tuple(batch.values()), path, dynamo=False, input_names=list(batch),
                      dynamic_axes=sizes, opset_version=17)


def shorten(path):
    import onnx

    file = onnx.load(path)
    for node in file.graph.node:
        node.doc_string = ""
        for i in reversed(range(len(node.metadata_props))):
            entry = node.metadata_props[i]
            # Of the operator's text, the names of buffers count.
            if node.op_type == "Constant" or entry.key in ("pkg.torch.onnx.stack_trace", "namespace") or (
                    entry.key == "pkg.torch.onnx.fx_node" and "%b_" not in entry.value):
                del node.metadata_props[i]
    for tensor in file.graph.initializer:
        if len(tensor.dims) > 1 and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.raw_data = b""
    path.write_bytes(file.SerializeToString())


def write_onnx():
    for name, make in MODELS.items():
        for exporter in (torch_export, torchscript, inference_torchscript):
            if exporter is inference_torchscript and name != "vit":
                continue
            model, batch, sizes = make()
            path = HERE / f"{name}.{exporter.__name__}.onnx"
            try:
                exporter(model.train(), batch, sizes, path)
            except Exception as error:  # TorchScript's exporter no longer knows every operator
                print(f"{path.name}: {str(error).splitlines()[0]}")
                continue
            shorten(path)


def write_recorded(device):
    sys.path.insert(0, str(HERE.parents[3] / "tools/python"))
    import fsdplan

    torch.backends.cudnn.enabled = False
    for name, make in MODELS.items():
        model, batch, _ = make()
        path = HERE / f"{name}.json"
        sample = tuple(value.to(device) for value in batch.values())
        fsdplan.export(model.train().to(device), sample, path, name=name)
        (HERE / f"{name}.json.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()


if __name__ == "__main__":
    write_onnx() if sys.argv[1] == "onnx" else write_recorded(sys.argv[2])
