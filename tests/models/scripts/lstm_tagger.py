"""A tagger by a bidirectional LSTM over packed sequences of several lengths."""
# mypy: ignore-errors

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD = 0


def prepare_sequence(seq, to_ix):
    return torch.tensor([to_ix[w] for w in seq], dtype=torch.long)


SENTENCES = [
    ("the dog ate the apple", "DET NN V DET NN"),
    ("everybody read that book", "NN V DET NN"),
    ("the cat saw the dog", "DET NN V DET NN"),
    ("everybody ate", "NN V"),
    ("that cat read", "DET NN V"),
    ("the dog saw that book", "DET NN V DET NN"),
]
word_to_ix = {"<pad>": PAD}
for sentence, _ in SENTENCES:
    for word in sentence.split():
        word_to_ix.setdefault(word, len(word_to_ix))
tag_to_ix = {"<pad>": PAD, "DET": 1, "NN": 2, "V": 3}


class Tagged(Dataset):
    def __len__(self):
        return len(SENTENCES)

    def __getitem__(self, index):
        words, tags = SENTENCES[index]
        return prepare_sequence(words.split(), word_to_ix), prepare_sequence(tags.split(), tag_to_ix)


def collate(batch):
    words, tags = zip(*batch, strict=True)
    lengths = torch.tensor([len(w) for w in words])
    return (
        pad_sequence(words, batch_first=True, padding_value=PAD),
        pad_sequence(tags, batch_first=True, padding_value=PAD),
        lengths,
    )


class LSTMTagger(nn.Module):
    def __init__(self, embedding_dim, hidden_dim, vocab_size, tagset_size):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, embedding_dim, padding_idx=PAD)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, num_layers=2, batch_first=True, bidirectional=True, dropout=0.0)
        self.hidden2tag = nn.Linear(2 * hidden_dim, tagset_size)
        self.init_weights()

    def init_weights(self):
        for name, param in self.lstm.named_parameters():
            if "bias" in name:
                nn.init.constant_(param, 0.0)
                n = param.size(0)
                param.data[n // 4 : n // 2].fill_(1.0)
            elif "weight_hh" in name:
                nn.init.orthogonal_(param)
            else:
                nn.init.xavier_uniform_(param)

    def forward(self, words, lengths):
        embeds = self.word_embeddings(words)
        packed = pack_padded_sequence(embeds, lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed_out, (h_n, _) = self.lstm(packed)
        out, out_lengths = pad_packed_sequence(packed_out, batch_first=True, total_length=words.size(1))
        assert torch.equal(out_lengths, lengths)
        return F.log_softmax(self.hidden2tag(out), dim=-1), h_n


def build():
    return LSTMTagger(12, 10, len(word_to_ix), len(tag_to_ix))


def train(model):
    model.lstm.flatten_parameters()
    loader = DataLoader(Tagged(), batch_size=3, shuffle=False, collate_fn=collate)
    loss_function = nn.NLLLoss(ignore_index=PAD)
    optimizer = optim.SGD(model.parameters(), lr=1.5, momentum=0.9, nesterov=True)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.5)
    for epoch in range(20):
        total, count = 0.0, 0
        for words, tags, lengths in loader:
            model.zero_grad()
            log_probs, _ = model(words, lengths)
            loss = loss_function(log_probs.reshape(-1, log_probs.size(-1)), tags.reshape(-1))
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.25)
            optimizer.step()
            total, count = total + loss.item() * int(lengths.sum()), count + lengths.sum().item()
        scheduler.step()
        print(f"epoch {epoch} loss {total / count:.4f} lr {optimizer.param_groups[0]['lr']:.4f}")
    model.eval()
    ix_to_tag = {i: t for t, i in tag_to_ix.items()}
    with torch.no_grad():
        words, tags, lengths = collate([Tagged()[i] for i in range(len(SENTENCES))])
        log_probs, h_n = model(words, lengths)
        predicted = log_probs.argmax(-1)
        mask = torch.arange(words.size(1))[None, :] < lengths[:, None]
        correct = ((predicted == tags) & mask).sum().item() / mask.sum().item()
        print(f"accuracy {correct:.3f} hidden {tuple(h_n.shape)} norm {h_n.norm():.4f}")
        for row, length in zip(predicted, lengths, strict=True):
            print(" ".join(ix_to_tag[int(t)] for t in row[:length]))


if __name__ == "__main__":
    torch.manual_seed(1)
    train(build())
